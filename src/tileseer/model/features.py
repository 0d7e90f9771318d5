"""The one definition of the learning features, used for training and for selection alike.

``FEATURE_SETS`` has ours, defined here, and the reference's (``reference_features``). In ours, sizes are those of
the implicit GEMM (``implicit_gemm``), tiles are the kernel's own (m, n, k), a batch is a group after merging.

No logarithms on pair features: a tree splits on the order of values only, so a monotone transform would cost
time and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.conv import implicit_gemm
from tileseer.conv.implicit_gemm import element_bytes
from tileseer.conv.operation import ELEMENT_BYTES, Operation
from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError
from tileseer.families.ck_tile.kernel import PIPELINES, SCHEDULERS, SPECIALIZATIONS, STREAMK
from tileseer.families.ck_tile.resources import capped_vectors
from tileseer.families.cutlass import features as cutlass
from tileseer.families.feature_table import Columns, Feature, FeatureSet, Pairs, column, only, raw
from tileseer.gpu.hardware import Hardware
from tileseer.reference.reference_features import REFERENCE

MIB = 2**20
ALIASES = {"compv1": "basic_v1", "compv2": "basic_v2"}
"""Two names of one kernel must not look like two kernels."""
CHUNK = 8192
"""Pairs evaluated at a time: about thirty float32 temporaries of this length stay in the second-level cache."""


_PROBLEM = (
    *raw(
        "1",
        N="batch size",
        C="input channels over all groups",
        K="output channels over all groups",
        G="groups",
        Di="input depth",
        Hi="input height",
        Wi="input width",
        Y="filter height",
        X="filter width",
        stride_h="stride along height",
        stride_w="stride along width",
        ndim="2 or 3 spatial dimensions",
    ),
    *raw(
        "1",
        gemm_m="rows of the implicit GEMM of one group (of one sub-GEMM for bwd_data)",
        gemm_n="columns of the implicit GEMM of one group",
        gemm_k="reduction length of the implicit GEMM",
        sub_gemms="independent GEMMs a strided bwd_data problem falls into",
    ),
    Feature("filter_volume", "1", "Z * Y * X", lambda p: p["Z"] * p["Y"] * p["X"]),
    Feature("max_dilation", "1", "largest dilation", lambda p: _largest(p, "dilation")),
    Feature("max_padding", "1", "largest padding", lambda p: _largest(p, "pad")),
    Feature("channels_a", "elements", "contiguous channels of A", column("run_a")),
    Feature("channels_b", "elements", "contiguous channels of B", column("run_b")),
    Feature("channels_c", "elements", "contiguous channels of C", column("run_c")),
    Feature("useful_gflop", "GFLOP", "2 * N * Do * Ho * Wo * K * C/G * Z * Y * X / 1e9", lambda p: p["flops"] / 1e9),
    Feature("unique_bytes", "B", "bytes read once plus bytes written", lambda p: _traffic(p)),
    Feature("intensity", "FLOP/B", "useful FLOP / unique bytes", lambda p: p["flops"] / _traffic(p)),
    Feature(
        "roofline_ratio", "1", "intensity / (peak FLOP rate / memory bandwidth): above 1 the problem is compute bound",
        lambda p: p["flops"] / _traffic(p) / p["balance"],
    ),
    Feature("footprint_l2", "1", "unique bytes / L2 of all dies", lambda p: _traffic(p) / p["l2_bytes"]),
    Feature("footprint_llc", "1", "unique bytes / last cache before memory", lambda p: _traffic(p) / p["llc_bytes"]),
    Feature("gemm_aspect", "1", "gemm_m / gemm_n", lambda p: p["gemm_m"] / p["gemm_n"]),
    Feature(
        "gemm_k_aspect", "1", "gemm_k / sqrt(gemm_m * gemm_n)",
        lambda p: p["gemm_k"] / np.sqrt(p["gemm_m"] * p["gemm_n"]),
    ),
    Feature(
        "output_per_cu", "elements", "GEMM output elements of all groups and sub-GEMMs a compute unit",
        lambda p: p["gemm_m"] * p["gemm_n"] * p["gemm_batch"] * p["sub_gemms"] / p["compute_units"],
    ),
)  # fmt: skip

_CANDIDATE = (
    *raw(
        "elements",
        tile_m="block tile m",
        tile_n="block tile n",
        tile_k="block tile k",
        warp_tile_m="matrix instruction m",
        warp_tile_n="matrix instruction n",
        warp_tile_k="matrix instruction k",
        vec_a="vector load of A",
        vec_b="vector load of B",
        vec_c="vector store of C",
    ),
    *raw(
        "1",
        wave_m="waves along m",
        wave_n="waves along n",
        num_wave_groups="wave groups of a block",
        num_groups_to_merge="convolution groups merged into one GEMM",
        double_smem_buffer="two LDS buffers, 0 or 1",
        two_stage="fp32 workspace and a conversion pass, 0 or 1",
        explicit_gemm="plain GEMM instead of im2col addressing, 0 or 1",
        split_image="64-bit addressing by image parts, 0 or 1",
        streamk_persistent="persistent stream-K grid, 0 or 1",
        split_k="slices of the reduction (launch knob)",
    ),
    *(
        Feature(name, "code", meaning, column(name), categorical=True)
        for name, meaning in (
            ("pipeline", "main loop; position in kernel.PIPELINES, aliases joined"),
            ("specialization", "filter specialisation; position in kernel.SPECIALIZATIONS"),
            ("streamk", "stream-K reduction; position in kernel.STREAMK"),
        )
    ),
    Feature("interwave", "1", "scheduler is interwave, 0 or 1", column("scheduler")),
    Feature("cshuffle", "1", "C leaves through LDS, 0 or 1", lambda c: c["epilogue"]),
    Feature("pads", "1", "how many of m, n, k are padded to the tile", lambda c: c["pad_m"] + c["pad_n"] + c["pad_k"]),
    Feature("vgprs", "registers", "vector registers of a lane, from the build", column("vgprs")),
    Feature("lds_bytes", "B", "LDS of a block, from the build", column("lds_bytes")),
    Feature("occupancy", "1", "blocks resident on a compute unit, from the build", column("occupancy")),
    Feature("waves_per_block", "1", "wave_m * wave_n * wave_k", lambda c: c["waves"]),
    Feature("tile_area", "elements", "tile_m * tile_n", lambda c: c["tile_m"] * c["tile_n"]),
    Feature("tile_aspect", "1", "tile_m / tile_n", lambda c: c["tile_m"] / c["tile_n"]),
    Feature(
        "tile_intensity", "FLOP/element", "tile_m * tile_n / (tile_m + tile_n): reuse of a loaded element",
        lambda c: c["tile_m"] * c["tile_n"] / (c["tile_m"] + c["tile_n"]),
    ),
    Feature(
        "accumulators", "elements", "tile_m * tile_n / threads of a block",
        lambda c: c["tile_m"] * c["tile_n"] / c["threads"],
    ),
    Feature("loads_a", "1", "vector loads of A a thread and k step", column("loads_a")),
    Feature("loads_b", "1", "vector loads of B a thread and k step", column("loads_b")),
)  # fmt: skip

_CODE = (
    Feature("agprs", "registers", "accumulation registers of a lane", column("agprs")),
    Feature("sgprs", "registers", "scalar registers of a wave", column("sgprs")),
    Feature("scratch_bytes", "B", "private memory of a lane", column("scratch_bytes")),
    Feature("vgpr_spills", "registers", "vector registers that did not fit", column("vgpr_spills")),
    Feature("code_bytes", "B", "machine code of the kernel", column("code_bytes")),
    *raw(
        "instructions",
        n_mfma="matrix instructions in the code; a loop counts once, here and below",
        n_buffer_loads="loads from global memory",
        n_buffer_stores="stores and atomics to global memory",
        n_lds_reads="reads of LDS",
        n_lds_writes="writes to LDS",
        n_barriers="barriers",
    ),
)
"""Features of candidates that only a compiler knows."""


class GemmPairs(Pairs):
    """Quantities of n (problem, candidate) pairs, each computed once and only when a feature asks for it.

    All are float32 [n]. GEMM sizes above 2**24 are rounded to float32 before the tiles are counted: a relative
    error below 1e-7, the same in training and in selection.
    """

    @cached_property
    def rows(self) -> np.ndarray:
        """GEMM rows after group merging."""
        return self.problem("gemm_m") * self.candidate("num_groups_to_merge")

    @cached_property
    def columns(self) -> np.ndarray:
        """GEMM columns after group merging."""
        return self.problem("gemm_n") * self.candidate("num_groups_to_merge")

    @cached_property
    def tiles_m(self) -> np.ndarray:
        """Tiles along m."""
        return np.ceil(self.rows / self.candidate("tile_m"))

    @cached_property
    def tiles_n(self) -> np.ndarray:
        """Tiles along n."""
        return np.ceil(self.columns / self.candidate("tile_n"))

    @cached_property
    def tiles_k(self) -> np.ndarray:
        """Steps of the whole reduction."""
        return np.ceil(self.problem("gemm_k") / self.candidate("tile_k"))

    @cached_property
    def output_tiles(self) -> np.ndarray:
        """Tiles of the output over merged groups and sub-GEMMs."""
        batch = np.ceil(self.problem("gemm_batch") / self.candidate("num_groups_to_merge"))
        return self.tiles_m * self.tiles_n * batch * self.problem("sub_gemms")

    @cached_property
    def slots(self) -> np.ndarray:
        """Blocks that the device holds at once."""
        return self.candidate("occupancy") * self.compute_units

    @cached_property
    def blocks(self) -> np.ndarray:
        """Blocks of the launch; stream-K launches what fits at once, split-K one block a slice."""
        split = np.minimum(self.candidate("split_k"), self.tiles_k)
        work = self.output_tiles * self.tiles_k
        return np.where(self.candidate("streamk") > 0, np.minimum(self.slots, work), self.output_tiles * split)

    @cached_property
    def k_steps(self) -> np.ndarray:
        """Reduction steps of one block."""
        return np.ceil(self.output_tiles * self.tiles_k / self.blocks)

    @cached_property
    def rounds(self) -> np.ndarray:
        """Waves of blocks, last one counted whole."""
        return np.ceil(self.blocks / self.slots)

    @cached_property
    def blocks_per_unit(self) -> np.ndarray:
        """Blocks that the busiest compute unit runs."""
        return np.ceil(self.blocks / self.compute_units)

    @cached_property
    def unit_steps(self) -> np.ndarray:
        """Reduction steps of the busiest compute unit."""
        return self.blocks_per_unit * self.k_steps

    @cached_property
    def tile_traffic(self) -> np.ndarray:
        """Bytes of A and B that all blocks load."""
        return self.blocks * self.k_steps * self.candidate("step_bytes")


_PAIR = (
    Feature("tiles_m", "1", "ceil(gemm_m * merged groups / tile_m)", lambda x: x.tiles_m),
    Feature("tiles_n", "1", "ceil(gemm_n * merged groups / tile_n)", lambda x: x.tiles_n),
    Feature("k_steps", "1", "reduction steps of one block: ceil(output tiles * k tiles / blocks)", lambda x: x.k_steps),
    Feature("fill_m", "1", "gemm_m / (tiles_m * tile_m): 1 - padding waste",
            lambda x: x.rows / (x.tiles_m * x.candidate("tile_m"))),
    Feature("fill_n", "1", "gemm_n / (tiles_n * tile_n)",
            lambda x: x.columns / (x.tiles_n * x.candidate("tile_n"))),
    Feature("fill_k", "1", "gemm_k / (tiles_k * tile_k)",
            lambda x: x.problem("gemm_k") / (x.tiles_k * x.candidate("tile_k"))),
    Feature("blocks", "1", "blocks of the launch, split-K and stream-K included", lambda x: x.blocks),
    Feature("blocks_per_cu", "1", "blocks / compute units", lambda x: x.blocks / x.compute_units),
    Feature("waves", "1", "blocks / (compute units * occupancy)", lambda x: x.blocks / x.slots),
    Feature("wave_fill", "1", "waves / ceil(waves): wave quantisation", lambda x: x.blocks / (x.slots * x.rounds)),
    Feature("unit_fill", "1", "blocks / (compute units * blocks of the busiest): balance over compute units",
            lambda x: x.blocks / (x.compute_units * x.blocks_per_unit)),
    Feature("chain_steps", "1", "rounds * k_steps: reduction steps one after the other",
            lambda x: x.rounds * x.k_steps),
    Feature("chain_loads", "1", "rounds * k_steps * (loads_a + loads_b): vector loads of a thread one after the other",
            lambda x: x.rounds * x.k_steps * x.candidate("loads")),
    Feature("unit_loads", "1", "k steps of the busiest compute unit * wave loads of a step",
            lambda x: x.unit_steps * x.candidate("wave_loads")),
    Feature("loads_overhead", "1/FLOP", "unit_loads * compute units / useful FLOP",
            lambda x: x.unit_steps * x.candidate("wave_loads") / x.problem("flops_per_cu")),
    Feature("matrix_overhead", "1", "matrix work of the busiest compute unit * compute units / useful FLOP",
            lambda x: x.unit_steps * x.candidate("step_flops") / x.problem("flops_per_cu")),
    Feature("useful_fraction", "1", "useful FLOP / FLOP of all blocks",
            lambda x: x.problem("flops") / (x.blocks * x.k_steps * x.candidate("step_flops"))),
    Feature("epilogue_elements", "elements", "output elements the busiest compute unit stores",
            lambda x: x.blocks_per_unit * x.candidate("tile_area")),
    Feature("epilogue_share", "1", "tile_area / (k_steps * (tile_m + tile_n) * tile_k): stores per load",
            lambda x: x.candidate("tile_area") / (x.k_steps * x.candidate("step_elements"))),
    Feature("tile_traffic", "B", "blocks * k_steps * (tile_m + tile_n) * tile_k * element bytes",
            lambda x: x.tile_traffic),
    Feature("reload_factor", "1", "tile_traffic / unique bytes", lambda x: x.tile_traffic / x.problem("unique_bytes")),
    Feature("partial_bytes", "B", "fp32 partial results of split-K: 4 * output elements * slices",
            lambda x: x.problem("output_elements") * np.minimum(x.candidate("split_k"), x.tiles_k)),
    Feature("vector_runs_a", "1", "merged channel run of A / vec_a",
            lambda x: x.problem("run_a") * x.candidate("num_groups_to_merge") / x.candidate("vec_a")),
    Feature("vector_runs_b", "1", "merged channel run of B / vec_b",
            lambda x: x.problem("run_b") * x.candidate("num_groups_to_merge") / x.candidate("vec_b")),
    Feature("vector_runs_c", "1", "merged channel run of C / vec_c",
            lambda x: x.problem("run_c") * x.candidate("num_groups_to_merge") / x.candidate("vec_c")),
)  # fmt: skip


def _traffic(p: Columns) -> np.ndarray:
    return p["bytes_read"] + p["bytes_written"]


def _largest(p: Columns, what: str) -> np.ndarray:
    return np.maximum(np.maximum(p[f"{what}_d"], p[f"{what}_h"]), p[f"{what}_w"])


def problem_columns(dims: Columns, operation: Operation, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what problem and pair features are made of, float64 [P] by name.

    ``dims`` are ``ndim`` and the 19 dimensions, int64 [P] each. Plain arithmetic, as ``implicit_gemm.columns``.
    """
    gemm = implicit_gemm.columns(dims, operation.variant, ELEMENT_BYTES[operation.dtype])
    columns = {name: dims[name].astype(np.float64) for name in ("ndim", *DIMS)}
    columns |= {name: values.astype(np.float64) for name, values in gemm.items()}
    peak = hardware.peak_tflops_fp32 if operation.dtype == "fp32" else hardware.peak_tflops_16bit
    l2_mib = hardware.l2_mib * hardware.xcds
    constants = {
        "balance": peak / hardware.hbm_tb_per_s,
        "l2_bytes": l2_mib * MIB,
        "llc_bytes": max(hardware.llc_mib, l2_mib) * MIB,
        "compute_units": hardware.compute_units,
    }
    columns |= {name: np.ones_like(columns["N"]) * float(value) for name, value in constants.items()}
    columns["unique_bytes"] = _traffic(columns)
    columns["flops_per_cu"] = columns["flops"] / hardware.compute_units
    columns["output_elements"] = columns["gemm_m"] * columns["gemm_n"] * columns["gemm_batch"] * 4
    return columns


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what candidate and pair features are made of, float64 [Q] by name.

    Loads: a thread loads ``ceil(tile_m * tile_k / (threads * vector))`` vectors of A in each step of k, likewise
    B; the vector is at most 16 bytes.
    """
    columns = {str(name): values.to_numpy() for name, values in candidates.items() if name not in _CODES}
    columns = {name: v.astype(np.float64) for name, v in columns.items() if v.dtype.kind in "biuf"}
    columns |= {name: _codes(candidates[name], choices) for name, choices in _CODES.items()}
    return with_loads(columns, candidates, hardware)


def with_loads(columns: dict[str, np.ndarray], candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Add what follows from the tiles, the waves and the vectors of candidates of any family; see above."""
    c = columns
    element = element_bytes(candidates["dtype"])
    c["waves"] = c["wave_m"] * c["wave_n"] * c["wave_k"]
    c["threads"] = c["waves"] * hardware.wave_size
    vec_a, vec_b, _ = capped_vectors(candidates)
    for operand, extent, vector in (("a", "tile_m", vec_a), ("b", "tile_n", vec_b)):
        c[f"loads_{operand}"] = np.maximum(np.ceil(c[extent] * c["tile_k"] / (c["threads"] * vector)), 1)
    c["loads"] = c["loads_a"] + c["loads_b"]
    c["wave_loads"] = c["loads"] * c["waves"]
    c["tile_area"] = c["tile_m"] * c["tile_n"]
    c["step_elements"] = (c["tile_m"] + c["tile_n"]) * c["tile_k"]
    c["step_bytes"] = c["step_elements"] * element
    c["step_flops"] = 2 * c["tile_area"] * c["tile_k"]
    return columns


_CODES = {
    "pipeline": PIPELINES,
    "scheduler": SCHEDULERS,
    "specialization": SPECIALIZATIONS,
    "streamk": STREAMK,
    "epilogue": ("default", "cshuffle"),
}


def _codes(values: pd.Series, choices: tuple[str, ...]) -> np.ndarray:
    code = {name: float(position) for position, name in enumerate(choices)}
    # A pool has few distinct words; looking each row up by itself would cost more than all its other features.
    number, words = pd.factorize(values)
    return np.array([code[ALIASES.get(word, word)] for word in words], np.float64)[number]


def _cutlass_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    columns = cutlass.candidate_columns(candidates)
    return with_loads(columns, candidates, hardware)


COMPILED = "compiled"
"""The set ``tileseer`` and what a compiler says of the kernels' code."""
CODE = tuple(feature.name for feature in _CODE)
"""The columns of candidates that ``COMPILED`` reads beside those of ``tileseer``."""
FEATURE_SETS: Mapping[str, FeatureSet] = {
    "tileseer": FeatureSet(_PROBLEM, _CANDIDATE, _PAIR, problem_columns, candidate_columns, GemmPairs),
    COMPILED: FeatureSet(_PROBLEM, (*_CANDIDATE, *_CODE), _PAIR, problem_columns, candidate_columns, GemmPairs),
    "cutlass": FeatureSet(
        _PROBLEM, cutlass.candidate_features(_CANDIDATE), _PAIR, problem_columns, _cutlass_columns, GemmPairs
    ),
    "reference": REFERENCE,
}
"""Feature sets by the name that a configuration gives."""


def feature_set(name: str) -> FeatureSet:
    """Return the feature set called ``name``; a ``UserError`` lists the known ones."""
    if name not in FEATURE_SETS:
        raise UserError(f"feature set {name!r} is unknown; use one of {', '.join(FEATURE_SETS)}")
    return FEATURE_SETS[name]


def fitting(name: str, candidates: pd.DataFrame) -> str:
    """Return the feature set to train with: ``tileseer`` becomes ``COMPILED`` where a compiler described the code."""
    if name == "tileseer" and CODE[0] in candidates and candidates[list(CODE)].notna().any(axis=None):
        return COMPILED
    return name


def compute(
    problems: pd.DataFrame,
    candidates: pd.DataFrame,
    problem_index: np.ndarray,
    candidate_index: np.ndarray,
    hardware: Hardware,
    features: str = "tileseer",
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Return the features of n pairs as [n, F] of the set's ``dtype``, columns ``names`` (default: all, in its order).

    ``problem_index`` and ``candidate_index`` (int [n]) are rows of the two tables. A row's features depend on its
    own pair only, never on which other pairs are asked for. The array is stored by columns, which is how both the
    computation and LightGBM read it. ``UserError`` for an unknown feature name or mixed directions.
    """
    made_of = columns(problems, candidates, hardware, features)
    return matrix(*made_of, problem_index, candidate_index, hardware, features, names)


def columns(
    problems: pd.DataFrame, candidates: pd.DataFrame, hardware: Hardware, features: str = "tileseer"
) -> tuple[Columns, Columns]:
    """Return the set's problem and candidate columns: who asks for one matrix after another makes them once."""
    chosen = feature_set(features)
    dims = {name: problems[name].to_numpy(np.int64) for name in ("ndim", *DIMS)}
    operation = Operation(only(problems, "variant"), only(problems, "dtype"))
    return chosen.problem_columns(dims, operation, hardware), chosen.candidate_columns(candidates, hardware)


def matrix(
    problems: Columns,
    candidates: Columns,
    problem_index: np.ndarray,
    candidate_index: np.ndarray,
    hardware: Hardware,
    features: str = "tileseer",
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Return what ``compute`` does, from what ``columns`` gives."""
    chosen = feature_set(features)
    wanted = chosen.names if names is None else tuple(names)
    row = {name: position for position, name in enumerate(wanted)}
    unknown = sorted(set(wanted) - set(chosen.names))
    if unknown:
        raise UserError(f"feature {unknown[0]!r} is not in feature set {features!r}")
    _assert_rows(problem_index, problems)
    _assert_rows(candidate_index, candidates)
    tables = _as(problems, chosen.dtype), _as(candidates, chosen.dtype)
    result = np.empty((len(wanted), len(problem_index)), chosen.dtype)
    fixed = [
        (row[f.name], np.asarray(f.values(columns), chosen.dtype), kind)
        for kind, (kinds, columns) in enumerate(((chosen.problem, problems), (chosen.candidate, candidates)))
        for f in kinds
        if f.name in row
    ]
    pair = [(row[f.name], f.values) for f in chosen.pair if f.name in row]
    for start in range(0, len(problem_index), CHUNK):
        part = slice(start, start + CHUNK)
        index = (problem_index[part].astype(np.intp), candidate_index[part].astype(np.intp))
        for target, values, kind in fixed:
            # Straight into the matrix: the mode that checks the rows again would gather into a buffer and copy.
            values.take(index[kind], out=result[target, part], mode="clip")
        pairs = chosen.pairs(*tables, *index, hardware.compute_units)
        for target, value in pair:
            result[target, part] = value(pairs)
    return result.T


def _assert_rows(index: np.ndarray, columns: Columns) -> None:
    rows = len(next(iter(columns.values())))
    if len(index) and not 0 <= index.min() <= index.max() < rows:
        raise IndexError(f"features: rows {index.min()} to {index.max()} of a table of {rows}")


def _as(columns: Columns, dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values, dtype) for name, values in columns.items()}
