"""Which CK Tile kernels can run which problems, decided on the CPU before anything is launched."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tileseer.conv import implicit_gemm
from tileseer.families.candidates import capped_vectors
from tileseer.families.ck_tile.resources import double_lds
from tileseer.families.support_rules import OPERATION, Columns, Rule, distinct, signatures, vectors_divide_runs

LARGEST_TENSOR = 2**31
"""Bytes from which 32-bit offsets no longer reach the whole tensor."""
MOST_SUB_GEMMS = 128
"""Places for sub-GEMMs in the arguments of a bwd_data kernel; the library's own check (``docs/host-support.md``)."""
INTERWAVE_PIPELINES = ("mem", "basic_v1", "basic_v2", "compv1", "compv2")


def filter_fits_specialization(problem: Columns, kernel: Columns) -> np.ndarray:
    """The filter, stride and padding are those that the kernel was specialised for.

    A kernel for 3 x 3 filters has no channels: it reduces over the taps of one channel a group, in every direction.
    """
    pointwise = problem["is_1x1"] & problem["pad0"]
    depth = (problem["Z"] == 3) | (kernel["signature"] % 4 != 3)
    taps_only = problem["is_3x3"] & depth & (problem["run_b"] == 1)
    wanted = kernel["specialization"]
    return (
        ((wanted != "filter1x1_pad0") | pointwise)
        & ((wanted != "filter1x1_stride1_pad0") | (pointwise & problem["stride1"]))
        & ((wanted != "filter3x3") | taps_only)
    )


def problem_is_a_gemm(problem: Columns, kernel: Columns) -> np.ndarray:
    """Explicit GEMM reads the tensors as matrices."""
    return ~kernel["explicit_gemm"] | (problem["is_1x1"] & problem["pad0"] & problem["stride1"])


def groups_divide(problem: Columns, kernel: Columns) -> np.ndarray:
    """G is a multiple of the number of merged groups."""
    return problem["G"] % kernel["num_groups_to_merge"] == 0


def compv5_is_forward(problem: Columns, kernel: Columns) -> np.ndarray:
    """compv5 exists for the forward direction."""
    return (kernel["pipeline"] != "compv5") | (kernel["variant"] == "forward")


def interwave_has_pipeline(problem: Columns, kernel: Columns) -> np.ndarray:
    """Only some pipelines have an interwave schedule."""
    return (kernel["scheduler"] != "interwave") | np.isin(kernel["pipeline"], INTERWAVE_PIPELINES)


def lds_is_double(problem: Columns, kernel: Columns) -> np.ndarray:
    """compv4 and comp_async alternate between two LDS buffers."""
    return kernel["double_smem_buffer"] | ~kernel["needs_double_lds"]


def streamk_is_bwd_weight(problem: Columns, kernel: Columns) -> np.ndarray:
    """Stream-K partitions the long reduction of the weight gradient."""
    return (kernel["streamk"] == "none") | (kernel["variant"] == "bwd_weight")


def two_stage_is_bwd_weight(problem: Columns, kernel: Columns) -> np.ndarray:
    """A second stage converts the accumulated weight gradient."""
    return ~kernel["two_stage"] | (kernel["variant"] == "bwd_weight")


def split_k_is_bwd_weight(problem: Columns, kernel: Columns) -> np.ndarray:
    """Split-K divides the reduction of the weight gradient; stream-K divides it by itself."""
    splits = kernel["split_k"] > 1
    return ~splits | ((kernel["variant"] == "bwd_weight") & (kernel["streamk"] == "none"))


def compv6_loads_fully(problem: Columns, kernel: Columns) -> np.ndarray:
    """Every thread has at least one whole vector of A and of B to load per k-step."""
    return (kernel["pipeline"] != "compv6") | (np.minimum(kernel["vectors_a"], kernel["vectors_b"]) >= 1)


def wave32_has_instruction(problem: Columns, kernel: Columns) -> np.ndarray:
    """Wave32 products have 16 x 16 instructions only."""
    return (kernel["wave_size"] != 32) | (kernel["warp_tile_m"] != 32)


def wave32_has_no_streamk(problem: Columns, kernel: Columns) -> np.ndarray:
    """Stream-K is written for waves of 64 lanes."""
    return (kernel["wave_size"] != 32) | (kernel["streamk"] == "none")


def offsets_reach(problem: Columns, kernel: Columns) -> np.ndarray:
    """32-bit byte offsets reach the end of the image tensors, or the kernel splits them."""
    return kernel["split_image"] | (problem["largest_image"] < LARGEST_TENSOR)


def sub_gemms_have_places(problem: Columns, kernel: Columns) -> np.ndarray:
    """An input gradient with strides falls into no more sub-GEMMs than one launch takes; forward has one."""
    return problem["sub_gemms"] <= MOST_SUB_GEMMS


RULES: tuple[Rule, ...] = (
    OPERATION,
    Rule("vector", "a vector width does not divide the channel run of A, B or C", vectors_divide_runs),
    Rule(
        "specialization",
        "the kernel is specialised for another filter, stride, padding or number of channels",
        filter_fits_specialization,
    ),
    Rule("explicit_gemm", "explicit GEMM needs a 1x1 filter, stride 1 and no padding", problem_is_a_gemm),
    Rule("merge_groups", "G is not a multiple of num_groups_to_merge", groups_divide),
    Rule("compv5", "pipeline compv5 exists for the forward direction only", compv5_is_forward),
    Rule(
        "interwave",
        "the interwave scheduler exists for mem and the basic pipelines only",
        interwave_has_pipeline,
    ),
    Rule("double_lds", "pipelines compv4 and comp_async need double_smem_buffer", lds_is_double),
    Rule("streamk", "stream-K exists for bwd_weight only", streamk_is_bwd_weight),
    Rule("two_stage", "two-stage kernels exist for bwd_weight only", two_stage_is_bwd_weight),
    Rule("split_k", "split_k > 1 exists for bwd_weight kernels without stream-K only", split_k_is_bwd_weight),
    Rule("compv6", "pipeline compv6 needs a whole vector of A and of B for every thread", compv6_loads_fully),
    Rule("wave32_tile", "wave32 products have no 32-row matrix instruction", wave32_has_instruction),
    Rule("wave32_streamk", "stream-K needs waves of 64 lanes", wave32_has_no_streamk),
    Rule("tensor_size", "an image tensor of 2 GiB or more needs a split_image kernel", offsets_reach),
    Rule("sub_gemms", f"bwd_data falls into more than {MOST_SUB_GEMMS} sub-GEMMs", sub_gemms_have_places),
)
"""Every support rule in the order of asking; verdict i + 1 stands for ``RULES[i]``."""

_KERNEL_FIELDS = (
    "variant", "pipeline", "scheduler", "warp_tile_m",
    "num_groups_to_merge", "specialization", "explicit_gemm", "double_smem_buffer", "streamk", "two_stage",
    "split_image",
)  # fmt: skip


def problem_columns(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    """What the rules read of P problems beside their signature; ``dims``: the 19 dimensions, int64 [P] each.

    Plain arithmetic, as ``implicit_gemm.columns``.
    """
    gemm = implicit_gemm.columns(dims, variant, element_size)
    columns = {"G": dims["G"], "Z": dims["Z"]}
    columns |= {f"run_{x}": gemm[f"run_{x}"].astype(np.int64) for x in "abc"}
    columns |= {name: gemm[name] for name in ("is_1x1", "is_3x3", "stride1", "pad0", "sub_gemms")}
    columns["largest_image"] = np.maximum(gemm["input_bytes"], gemm["output_bytes"])
    return columns


def kernel_classes(candidates: pd.DataFrame, wave_size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of one kernel a class, [1, classes] each, and the class of each candidate."""
    table = candidates[list(_KERNEL_FIELDS)].copy()
    table["signature"] = signatures(candidates)
    table["split_k"] = np.minimum(candidates["split_k"], 2)
    table["needs_double_lds"] = double_lds(candidates.assign(double_smem_buffer=False))
    threads = wave_size * candidates["wave_m"] * candidates["wave_n"] * candidates["wave_k"]
    vec_a, vec_b, vec_c = capped_vectors(candidates)
    for operand, vector in (("a", vec_a), ("b", vec_b), ("c", vec_c)):
        table[f"vec_{operand}"] = vector.astype(np.int64)
    for operand, tile, vector in (("a", "tile_m", vec_a), ("b", "tile_n", vec_b)):
        vectors = candidates[tile] * candidates["tile_k"] // (threads * vector)
        table[f"vectors_{operand}"] = np.minimum(vectors, 1)
    kernel, classes = distinct(table)
    kernel["wave_size"] = np.full((1, kernel["signature"].shape[1]), wave_size)
    return kernel, classes
