"""Which CUTLASS kernels are legal on an arch, and which problems they can run.

Support rules say in columns what ``can_implement`` of the templates refuses.
"""

import numpy as np
import pandas as pd

from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.cutlass.kernel import INSTRUCTION_SHAPE, CutlassKernel, shared_bytes
from tileseer.libraries.rules import (
    ACCESSES,
    OPERATION,
    THREADS_FIT,
    TILE_DIVIDES,
    VECTORS_DIVIDE_RUNS,
    Columns,
    Rule,
    Rules,
    channel_runs_of,
    gemm_arch_columns,
    gemm_kernel_columns,
)
from tileseer.problems import shapes


def _gradient_has_form(k: Columns) -> np.ndarray:
    unity = (k["iterator"] == "optimized") & (k["strides"] == "unity")
    strided = (k["iterator"] == "analytic") & (k["strides"] == "strided")
    return (k["variant"] != "bwd_data") | (k["ndim"] != 3) | unity | strided


_LEGALITY = (
    Rule(
        "instruction_on_arch",
        f"({{warp_tile_m}}, {{warp_tile_n}}, {{warp_tile_k}}) is no {{dtype}} matrix instruction of CUTLASS 2.x on "
        f"{{arch}}, which is {INSTRUCTION_SHAPE}",
        ("arch",),
        lambda arch: arch["has_instruction"],
    ),
    TILE_DIVIDES,
    THREADS_FIT,
    Rule(
        "shared_memory_fits",
        "{shared_bytes} bytes of shared memory; {arch} has {lds}",
        ("arch", "kernel"),
        lambda arch, k: k["shared_bytes"] <= arch["lds"],
    ),
    # An asynchronous copy moves 4, 8 or 16 bytes.
    Rule(
        "copies_are_asynchronous",
        "{stages} stages need loads of 2 elements or more, not {vec_a} and {vec_b}",
        ("kernel",),
        lambda k: (k["stages"] <= 2) | (np.minimum(k["vec_a"], k["vec_b"]) >= 2),
    ),
    Rule(
        "volumes_load_fully",
        "3D kernels load 8 elements at a time, not {vec_a} and {vec_b}",
        ("kernel",),
        lambda k: (k["ndim"] != 3) | ((k["vec_a"] == 8) & (k["vec_b"] == 8)),
    ),
    Rule(
        "gradient_has_form",
        "the 3D input gradient has no {iterator} iterator for strides {strides}",
        ("kernel",),
        _gradient_has_form,
    ),
    Rule(
        "groups_have_form",
        "groups exist for the 2D forward direction only, and the optimized iterator computes one group per block; "
        "this is {ndim}D {variant} with the iterator {iterator} and {group_mode} groups",
        ("kernel",),
        lambda k: (
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


def _groups_fill_tile(kernel: Columns, problem: Columns) -> np.ndarray:
    """Tell whether a group's output channels are whole tiles, or a tile is whole groups."""
    channels, tile, mode = problem["group_k"], kernel["tile_n"], kernel["group_mode"]
    return ((mode != "single") | (channels % tile == 0)) & ((mode != "multiple") | (tile % channels == 0))


def _filter_has_masks(kernel: Columns, problem: Columns) -> np.ndarray:
    """Tell whether a mask bit a tap is enough, as optimized iterators have; the weight gradient's need none."""
    free = (kernel["iterator"] != "optimized") | (kernel["variant"] == "bwd_weight")
    return free | (problem["largest_filter"] <= LARGEST_FILTER)


def _slices_have_work(kernel: Columns, problem: Columns, split: np.ndarray) -> np.ndarray:
    """Tell whether every slice has a step of the reduction; only the weight gradient is split."""
    steps = np.ceil(problem["gemm_k"] / kernel["tile_k"])
    return (split == 1) | ((kernel["variant"] == "bwd_weight") & (split <= steps))


_BOTH = ("kernel", "problem")
_SUPPORT = (
    OPERATION,
    VECTORS_DIVIDE_RUNS,
    Rule("groups", "groups need a kernel with a group mode, and such a kernel needs groups", _BOTH,
         lambda k, p: (p["G"] > 1) == (k["group_mode"] != "none")),
    Rule("group_tile", "a group's output channels are no whole tiles, nor a tile whole groups", _BOTH,
         _groups_fill_tile),
    Rule("stride", "the kernel is written for stride 1", _BOTH, lambda k, p: (k["strides"] != "unity") | p["stride1"]),
    Rule("dilation", "the input gradient for every stride does not support dilation", _BOTH,
         lambda k, p: (k["strides"] != "strided") | ~p["dilated"]),
    Rule("filter", f"the optimized iterators support at most {LARGEST_FILTER} taps per axis", _BOTH,
         _filter_has_masks),
    Rule("tensor_size", "a tensor has 2 GiB or more", ("problem",), lambda p: p["largest_tensor"] < LARGEST_TENSOR),
    Rule("split_k", "split_k > 1 is for bwd_weight, with at most a slice for each step", ("kernel", "problem", "split"),
         _slices_have_work),
)  # fmt: skip


def _read_of_kernels(candidates: pd.DataFrame, wave_size: int) -> dict[str, np.ndarray]:
    columns = gemm_kernel_columns(candidates, CutlassKernel, wave_size)
    return columns | {"shared_bytes": shared_bytes(columns)}


def _read_of_arch(k: Columns, arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    columns = gemm_arch_columns(k, arch, specs)
    sizes = zip("mnk", INSTRUCTION_SHAPE, strict=True)
    own = np.logical_and.reduce([k[f"warp_tile_{axis}"] == size for axis, size in sizes])
    return columns | {"has_instruction": columns["has_warp_tile"] & own}


def _read_of_problems(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    gemm = shapes.gemm_columns(dims, variant, element_size)
    columns = {"G": dims["G"], "group_k": dims["K"] // dims["G"]}
    columns |= channel_runs_of(gemm) | {"stride1": gemm["stride1"], "gemm_k": gemm["gemm_k"]}
    columns["dilated"] = _largest(dims, "dilation_d", "dilation_h", "dilation_w") > 1
    columns["largest_filter"] = _largest(dims, "Z", "Y", "X")
    columns["largest_tensor"] = _largest(gemm, "input_bytes", "filter_bytes", "output_bytes")
    return columns


def _largest(columns: Columns, *names: str) -> np.ndarray:
    first, second, third = (columns[name] for name in names)
    return np.maximum(np.maximum(first, second), third)


RULES = Rules(
    (*_LEGALITY, *_SUPPORT),
    _read_of_kernels,
    _read_of_problems,
    (*ACCESSES, "variant", "iterator", "tile_n", "tile_k", "strides", "group_mode"),
    _read_of_arch,
)
