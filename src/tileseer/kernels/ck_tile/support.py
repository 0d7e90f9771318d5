"""Which CK Tile kernels can run which problems, decided on the CPU before anything is launched."""

import numpy as np
import pandas as pd

from tileseer.kernels.ck_tile.pipelines import double_lds
from tileseer.kernels.rules import OPERATION, Columns, Rule, SupportRules, capped_vectors, vectors_divide_runs
from tileseer.problems import implicit_gemm

LARGEST_TENSOR = 2**31
"""Bytes from which 32-bit offsets no longer reach the whole tensor."""
MOST_SUB_GEMMS = 128
"""Places for sub-GEMMs in the arguments of a bwd_data kernel (``docs/generated/host-support.md``)."""
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


def _is_bwd_weight(kernel: Columns) -> np.ndarray:
    return kernel["variant"] == "bwd_weight"


# p: problem columns [P, 1]; k: columns of kernel classes [1, Q].
RULES: tuple[Rule, ...] = (
    OPERATION,
    Rule("vector", "a vector width does not divide the channel run of A, B or C", vectors_divide_runs),
    Rule("specialization", "the kernel is specialised for another filter, stride, padding or number of channels",
         filter_fits_specialization),
    Rule("explicit_gemm", "explicit GEMM needs a 1x1 filter, stride 1 and no padding",
         lambda p, k: ~k["explicit_gemm"] | (p["is_1x1"] & p["pad0"] & p["stride1"])),
    Rule("merge_groups", "G is not a multiple of num_groups_to_merge",
         lambda p, k: p["G"] % k["num_groups_to_merge"] == 0),
    Rule("compv5", "pipeline compv5 exists for the forward direction only",
         lambda p, k: (k["pipeline"] != "compv5") | (k["variant"] == "forward")),
    Rule("interwave", "the interwave scheduler exists for mem and the basic pipelines only",
         lambda p, k: (k["scheduler"] != "interwave") | np.isin(k["pipeline"], INTERWAVE_PIPELINES)),
    Rule("double_lds", "pipelines compv4 and comp_async need double_smem_buffer",
         lambda p, k: k["double_smem_buffer"] | ~k["needs_double_lds"]),
    Rule("streamk", "stream-K exists for bwd_weight only", lambda p, k: (k["streamk"] == "none") | _is_bwd_weight(k)),
    Rule("two_stage", "two-stage kernels exist for bwd_weight only", lambda p, k: ~k["two_stage"] | _is_bwd_weight(k)),
    Rule("split_k", "split_k > 1 exists for bwd_weight kernels without stream-K only",
         lambda p, k: ~(k["split_k"] > 1) | (_is_bwd_weight(k) & (k["streamk"] == "none"))),
    Rule("compv6", "pipeline compv6 needs a whole vector of A and of B for every thread",
         lambda p, k: (k["pipeline"] != "compv6") | (np.minimum(k["vectors_a"], k["vectors_b"]) >= 1)),
    Rule("wave32_tile", "wave32 products have no 32-row matrix instruction",
         lambda p, k: (k["wave_size"] != 32) | (k["warp_tile_m"] != 32)),
    Rule("wave32_streamk", "stream-K needs waves of 64 lanes",
         lambda p, k: (k["wave_size"] != 32) | (k["streamk"] == "none")),
    # 32-bit byte offsets reach the end of the image tensors, or the kernel splits them.
    Rule("tensor_size", "an image tensor of 2 GiB or more needs a split_image kernel",
         lambda p, k: k["split_image"] | (p["largest_image"] < LARGEST_TENSOR)),
    Rule("sub_gemms", f"bwd_data falls into more than {MOST_SUB_GEMMS} sub-GEMMs",
         lambda p, k: p["sub_gemms"] <= MOST_SUB_GEMMS),
)  # fmt: skip

_KERNEL_FIELDS = (
    "variant", "pipeline", "scheduler", "warp_tile_m",
    "num_groups_to_merge", "specialization", "explicit_gemm", "double_smem_buffer", "streamk", "two_stage",
    "split_image",
)  # fmt: skip


def _read_of_problems(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    """What the rules read of P problems beside their signature; ``dims``: the 19 dimensions, int64 [P] each.

    Plain arithmetic, as ``implicit_gemm.gemm_columns``.
    """
    gemm = implicit_gemm.gemm_columns(dims, variant, element_size)
    columns = {"G": dims["G"], "Z": dims["Z"]}
    columns |= {f"run_{x}": gemm[f"run_{x}"].astype(np.int64) for x in "abc"}
    columns |= {name: gemm[name] for name in ("is_1x1", "is_3x3", "stride1", "pad0", "sub_gemms")}
    columns["largest_image"] = np.maximum(gemm["input_bytes"], gemm["output_bytes"])
    return columns


def _read_of_kernels(candidates: pd.DataFrame, wave_size: int) -> pd.DataFrame:
    """What the rules read of candidates."""
    table = candidates[list(_KERNEL_FIELDS)].copy()
    table["split_k"] = np.minimum(candidates["split_k"], 2)
    table["needs_double_lds"] = double_lds(candidates.assign(double_smem_buffer=False))
    threads = wave_size * candidates["wave_m"] * candidates["wave_n"] * candidates["wave_k"]
    vec_a, vec_b, vec_c = capped_vectors(candidates)
    for operand, vector in (("a", vec_a), ("b", vec_b), ("c", vec_c)):
        table[f"vec_{operand}"] = vector.astype(np.int64)
    for operand, tile, vector in (("a", "tile_m", vec_a), ("b", "tile_n", vec_b)):
        vectors = candidates[tile] * candidates["tile_k"] // (threads * vector)
        table[f"vectors_{operand}"] = np.minimum(vectors, 1)
    return table


CK_TILE_SUPPORT = SupportRules(RULES, _read_of_kernels, _read_of_problems)
