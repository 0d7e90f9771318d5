"""Which CUTLASS kernels are legal on an arch, and which problems they can run.

Support rules say in columns what ``can_implement`` of the templates refuses.
"""

from collections.abc import Sequence

import numpy as np

from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.cutlass.kernel import INSTRUCTION_SHAPE, CutlassKernel, shared_bytes
from tileseer.kernels.rules import (
    OPERATION,
    THREADS_FIT,
    TILE_DIVIDES,
    Columns,
    Rule,
    SupportRules,
    kernel_columns,
    vectors_divide_runs,
)
from tileseer.problems import implicit_gemm


def legality_columns(kernels: Sequence[CutlassKernel], arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    """What the rules read of Q kernels, [Q] each."""
    columns = kernel_columns(kernels, arch, specs)
    columns["shared_bytes"] = shared_bytes(columns)
    columns["has_instruction"] = columns["has_warp_tile"] & [
        kernel.warp_tile == INSTRUCTION_SHAPE for kernel in kernels
    ]
    return columns


def _gradient_has_form(problem: Columns, k: Columns) -> np.ndarray:
    unity = (k["iterator"] == "optimized") & (k["strides"] == "unity")
    strided = (k["iterator"] == "analytic") & (k["strides"] == "strided")
    return (k["variant"] != "bwd_data") | (k["ndim"] != 3) | unity | strided


LEGALITY = (
    Rule(
        "instruction_on_arch",
        f"({{warp_tile_m}}, {{warp_tile_n}}, {{warp_tile_k}}) is no {{dtype}} matrix instruction of CUTLASS 2.x on "
        f"{{arch}}, which is {INSTRUCTION_SHAPE}",
        lambda p, k: k["has_instruction"],
    ),
    TILE_DIVIDES,
    THREADS_FIT,
    Rule(
        "shared_memory_fits",
        "{shared_bytes} bytes of shared memory; {arch} has {lds}",
        lambda p, k: k["shared_bytes"] <= k["lds"],
    ),
    # An asynchronous copy moves 4, 8 or 16 bytes.
    Rule(
        "copies_are_asynchronous",
        "{stages} stages need loads of 2 elements or more, not {vec_a} and {vec_b}",
        lambda p, k: (k["stages"] <= 2) | (np.minimum(k["vec_a"], k["vec_b"]) >= 2),
    ),
    Rule(
        "volumes_load_fully",
        "3D kernels load 8 elements at a time, not {vec_a} and {vec_b}",
        lambda p, k: (k["ndim"] != 3) | ((k["vec_a"] == 8) & (k["vec_b"] == 8)),
    ),
    Rule(
        "gradient_has_form",
        "the 3D input gradient has no {iterator} iterator for strides {strides}",
        _gradient_has_form,
    ),
    Rule(
        "groups_have_form",
        "groups exist for the 2D forward direction only, and the optimized iterator computes one group per block; "
        "this is {ndim}D {variant} with the iterator {iterator} and {group_mode} groups",
        lambda p, k: (
            (k["group_mode"] == "none")
            | (
                (k["variant"] == "forward")
                & (k["ndim"] == 2)
                & ((k["iterator"] != "optimized") | (k["group_mode"] != "multiple"))
            )
        ),
    ),
)

LARGEST_TENSOR = 2**31
"""Bytes that a tensor stays below: the templates count offsets in 32 bits."""
LARGEST_FILTER = 32
"""Taps along an axis that the optimized iterators have mask bits for."""


def groups_fill_tile(problem: Columns, kernel: Columns) -> np.ndarray:
    """A group's output channels are whole tiles, or a tile is whole groups."""
    channels, tile, mode = problem["group_k"], kernel["tile_n"], kernel["group_mode"]
    return ((mode != "single") | (channels % tile == 0)) & ((mode != "multiple") | (tile % channels == 0))


def filter_has_masks(problem: Columns, kernel: Columns) -> np.ndarray:
    """The optimized iterators keep a mask bit a tap; those of the weight gradient need none."""
    free = (kernel["iterator"] != "optimized") | (kernel["variant"] == "bwd_weight")
    return free | (problem["largest_filter"] <= LARGEST_FILTER)


def slices_have_work(problem: Columns, kernel: Columns) -> np.ndarray:
    """Split-K exists for the weight gradient, and every slice has a step of the reduction."""
    split, steps = kernel["split_k"], np.ceil(problem["gemm_k"] / kernel["tile_k"])
    return (split == 1) | ((kernel["variant"] == "bwd_weight") & (split <= steps))


# p: problem columns [P, 1]; k: columns of kernel classes [1, Q].
SUPPORT_RULES: tuple[Rule, ...] = (
    OPERATION,
    Rule("vector", "a vector width does not divide the channels of A, B or C", vectors_divide_runs),
    Rule("groups", "groups need a kernel with a group mode, and such a kernel needs groups",
         lambda p, k: (p["G"] > 1) == (k["group_mode"] != "none")),
    Rule("group_tile", "a group's output channels are no whole tiles, nor a tile whole groups", groups_fill_tile),
    Rule("stride", "the kernel is written for stride 1", lambda p, k: (k["strides"] != "unity") | p["stride1"]),
    Rule("dilation", "the input gradient for every stride does not support dilation",
         lambda p, k: (k["strides"] != "strided") | ~p["dilated"]),
    Rule("filter", f"the optimized iterators support at most {LARGEST_FILTER} taps per axis", filter_has_masks),
    Rule("tensor_size", "a tensor has 2 GiB or more",
         lambda p, k: (p["largest_tensor"] < LARGEST_TENSOR) | (k["split_k"] < 0)),
    Rule("split_k", "split_k > 1 is for bwd_weight, with at most a slice for each step", slices_have_work),
)  # fmt: skip

_FIELDS = ("variant", "iterator", "tile_n", "tile_k", "vec_a", "vec_b", "vec_c", "strides", "group_mode", "split_k")


def _read_of_problems(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    """What the rules read of P problems beside their signature; ``dims``: the 19 dimensions, int64 [P] each.

    Plain arithmetic, as ``implicit_gemm.gemm_columns``.
    """
    gemm = implicit_gemm.gemm_columns(dims, variant, element_size)
    columns = {"G": dims["G"], "group_k": dims["K"] // dims["G"]}
    columns |= {f"run_{x}": gemm[f"run_{x}"].astype(np.int64) for x in "abc"}
    columns |= {"stride1": gemm["stride1"], "gemm_k": gemm["gemm_k"]}
    columns["dilated"] = _largest(dims, "dilation_d", "dilation_h", "dilation_w") > 1
    columns["largest_filter"] = _largest(dims, "Z", "Y", "X")
    columns["largest_tensor"] = _largest(gemm, "input_bytes", "filter_bytes", "output_bytes")
    return columns


CUTLASS_SUPPORT = SupportRules(
    SUPPORT_RULES, lambda candidates, wave_size: candidates[list(_FIELDS)].copy(), _read_of_problems
)


def _largest(columns: Columns, *names: str) -> np.ndarray:
    first, second, third = (columns[name] for name in names)
    return np.maximum(np.maximum(first, second), third)
