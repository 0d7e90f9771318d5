"""Which kernels are legal on an arch; what a *problem* demands is in ``support``."""

from collections.abc import Sequence

import numpy as np

from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.cutlass.kernel import INSTRUCTION, CutlassKernel, shared_bytes
from tileseer.kernels.rules import THREADS_FIT, TILE_DIVIDES, Columns, Rule, kernel_columns


def legality_columns(kernels: Sequence[CutlassKernel], arch: str, specs: ArchSpecs) -> dict[str, np.ndarray]:
    """What the rules read of Q kernels, [Q] each."""
    columns = kernel_columns(kernels, arch, specs)
    columns["shared_bytes"] = shared_bytes(columns)
    columns["has_instruction"] = columns["has_warp_tile"] & [kernel.warp_tile == INSTRUCTION for kernel in kernels]
    return columns


def _gradient_has_form(problem: Columns, k: Columns) -> np.ndarray:
    unity = (k["iterator"] == "optimized") & (k["strides"] == "unity")
    strided = (k["iterator"] == "analytic") & (k["strides"] == "strided")
    return (k["variant"] != "bwd_data") | (k["ndim"] != 3) | unity | strided


LEGALITY = (
    Rule(
        "instruction_on_arch",
        f"({{warp_tile_m}}, {{warp_tile_n}}, {{warp_tile_k}}) is no {{dtype}} matrix instruction of CUTLASS 2.x on "
        f"{{arch}}, which is {INSTRUCTION}",
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
