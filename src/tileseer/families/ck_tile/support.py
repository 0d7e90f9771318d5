"""Which kernels can run which problems, decided on the CPU before anything is launched.

``RULES`` is the whole list, in the order in which they are asked; the first rule that fails is the verdict.
Most rules look at a few fields only, so they are evaluated once per class of kernels that agree in those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.conv import implicit_gemm
from tileseer.conv import problem as problem_tables
from tileseer.conv.operation import DTYPES, VARIANTS
from tileseer.conv.problem import DIMS, Problem
from tileseer.families.ck_tile import kernel as kernels
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.ck_tile.resources import capped_vectors, double_lds

LARGEST_TENSOR = 2**31
"""Bytes from which 32-bit offsets no longer reach the whole tensor."""
MOST_SUB_GEMMS = 128
"""Places for sub-GEMMs in the arguments of a bwd_data kernel; the library's own check (``docs/host-support.md``)."""
INTERWAVE_PIPELINES = ("mem", "basic_v1", "basic_v2", "compv1", "compv2")

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rule:
    """A condition for a kernel to run a problem; ``reason`` is the sentence a user reads when it fails.

    ``holds(problem, kernel)`` gets columns by name, problems [P, 1] and kernel classes [1, Q], and returns a
    bool array that broadcasts to [P, Q].
    """

    name: str
    reason: str
    holds: Callable[[Columns, Columns], np.ndarray]


def same_operation(problem: Columns, kernel: Columns) -> np.ndarray:
    """Direction, data type and dimensionality agree."""
    return problem["signature"] == kernel["signature"]


def vectors_divide_runs(problem: Columns, kernel: Columns) -> np.ndarray:
    """Each vector width divides the contiguous channels of its operand; merged groups are walked one by one."""
    fits = [problem[f"run_{x}"] % kernel[f"vec_{x}"] == 0 for x in "abc"]
    return fits[0] & fits[1] & fits[2]


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


RULES = (
    Rule("operation", "the kernel is for another direction, data type or dimensionality", same_operation),
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


def check(
    problems: pd.DataFrame,
    candidates: pd.DataFrame,
    variant: str,
    channel_multiple: int = 0,
    wave_size: int = 64,
) -> np.ndarray:
    """Return the verdict of each of P problems with each of Q candidates, uint8 [P, Q].

    0 is supported, else 1 + the index into ``RULES`` of the first rule that fails. ``candidates`` has the
    fields of ``KernelConfig`` and ``split_k``. ``channel_multiple``: see ``implicit_gemm``; ``wave_size``: of
    the device.
    """
    verdicts, classes = check_classes(problems, candidates, variant, channel_multiple, wave_size)
    return np.take(verdicts, classes, axis=1)


def check_classes(
    problems: pd.DataFrame,
    candidates: pd.DataFrame,
    variant: str,
    channel_multiple: int = 0,
    wave_size: int = 64,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the verdicts [P, classes] (uint8) and the class of each candidate [Q]; see ``check``."""
    problem = _problem_columns(problems, variant, channel_multiple)
    kernel, classes = kernel_classes(candidates, wave_size)
    return classes_verdicts(problem, kernel), classes


def classes_verdicts(problem: Columns, kernel: Columns, rules: Sequence[Rule] = RULES) -> np.ndarray:
    """Return the verdicts of problems (columns [P]) with kernel classes (columns [1, classes]), uint8 [P, classes]."""
    wide = {name: values[:, None] for name, values in problem.items()}
    verdicts = np.zeros((len(problem["G"]), kernel["signature"].shape[1]), np.uint8)
    for number, rule in reversed(list(enumerate(rules, start=1))):
        fails = ~rule.holds(wide, kernel)
        if fails.any():
            verdicts[np.broadcast_to(fails, verdicts.shape)] = number
    return verdicts


def explain(
    problem: Problem, kernel: KernelConfig, split_k: int = 1, channel_multiple: int = 0, wave_size: int = 64
) -> list[tuple[str, bool, str]]:
    """Return (rule, passed, reason) of every rule for one pair; the reason is what failing means."""
    candidate = kernels.frame([kernel]).assign(split_k=split_k)
    one, _ = kernel_classes(candidate, wave_size)
    columns = _problem_columns(problem_tables.frame([problem]), problem.variant, channel_multiple)
    return [(rule.name, bool(np.all(rule.holds(columns, one))), rule.reason) for rule in RULES]


def _problem_columns(problems: pd.DataFrame, variant: str, channel_multiple: int) -> dict[str, np.ndarray]:
    dims = {name: problems[name].to_numpy(np.int64) for name in DIMS}
    sizes = implicit_gemm.element_bytes(problems["dtype"])
    return problem_columns(dims, variant, sizes, channel_multiple) | {"signature": signatures(problems)}


def problem_columns(
    dims: Columns, variant: str, element_size: np.ndarray | float, channel_multiple: int = 0
) -> dict[str, np.ndarray]:
    """Return what the rules read of P problems beside their signature; ``dims``: the 19 dimensions, int64 [P] each.

    Plain arithmetic, as ``implicit_gemm.columns``.
    """
    gemm = implicit_gemm.columns(dims, variant, element_size, channel_multiple)
    columns = {"G": dims["G"], "Z": dims["Z"]}
    columns |= {f"run_{x}": gemm[f"run_{x}"].astype(np.int64) for x in "abc"}
    columns |= {name: gemm[name] for name in ("is_1x1", "is_3x3", "stride1", "pad0", "sub_gemms")}
    columns["largest_image"] = np.maximum(gemm["input_bytes"], gemm["output_bytes"])
    return columns


def signature(variant: str, dtype: str, ndim: np.ndarray) -> np.ndarray:
    """Return one number for direction, data type and dimensionality of each problem, int64, for quick comparison."""
    return (VARIANTS.index(variant) * len(DTYPES) + DTYPES.index(dtype)) * 4 + ndim


def signatures(table: pd.DataFrame) -> np.ndarray:
    """Return one number for direction, data type and dimensionality of each row, for quick comparison."""
    variant, dtype = (
        table[field].map({name: code for code, name in enumerate(names)}).to_numpy(np.int64)
        for field, names in (("variant", VARIANTS), ("dtype", DTYPES))
    )
    return (variant * len(DTYPES) + dtype) * 4 + table["ndim"].to_numpy(np.int64)


def kernel_classes(candidates: pd.DataFrame, wave_size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the columns of one kernel a class, [1, classes] each, and the class of each candidate."""
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
    classes = table.groupby(list(table.columns), sort=False).ngroup().to_numpy()
    _, first = np.unique(classes, return_index=True)
    kernel: dict[str, np.ndarray] = {}
    for name in table:
        values = table[name].to_numpy()[first]
        kernel[str(name)] = (values if values.dtype.kind in "ifbu" else values.astype(object))[None, :]
    kernel["wave_size"] = np.full((1, len(first)), wave_size)
    return kernel, classes
