"""The learning features that implicit GEMMs of every family share: of problems, of tiles, and of pairs of them.

Sizes are those of the implicit GEMM (``implicit_gemm``), tiles are the kernel's own (m, n, k), a batch is a group after
merging. There are no logarithms on pair features: a tree splits on the order of values only, so a monotone transform
would cost time and change nothing.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.candidates import capped_vectors
from tileseer.learn.features.table import Columns, Feature, FeatureSet, PairColumns, column, raw
from tileseer.problems import implicit_gemm
from tileseer.problems.implicit_gemm import element_bytes
from tileseer.problems.operation import ELEMENT_BYTES, Operation
from tileseer.problems.problem import DIMS

MIB = 2**20
LEAST_OCCUPANCY = np.float32(0.1)
"""Resident blocks of a kernel of which the estimate says that none fits, or says nothing."""

PROBLEM = (
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

TILES = (
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
    *raw("1", wave_m="waves along m", wave_n="waves along n"),
)
"""Of candidates: fields that every family's kernels have."""
SPLIT_K = raw("1", split_k="slices of the reduction (launch knob)")
BUILT = (
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
"""Of candidates: what the build says of them, and what follows from tiles, waves and vectors."""


class GemmPairColumns(PairColumns):
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
        return np.maximum(self.candidate("occupancy"), LEAST_OCCUPANCY) * self.compute_units

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


PAIR = (
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
    """What problem and pair features are made of, float64 [P] by name.

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


def numbers(candidates: pd.DataFrame) -> dict[str, np.ndarray]:
    """Columns of candidates that are numbers or flags, float64 [Q] by name."""
    columns = {str(name): values.to_numpy() for name, values in candidates.items()}
    return {name: v.astype(np.float64) for name, v in columns.items() if v.dtype.kind in "biuf"}


def with_loads(columns: dict[str, np.ndarray], candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Add what follows from the tiles, the waves and the vectors of candidates, float64 [Q] by name.

    Loads: a thread loads ``ceil(tile_m * tile_k / (threads * vector))`` vectors of A in each step of k, likewise
    B; the vector is at most 16 bytes.
    """
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


def feature_set(
    candidate: tuple[Feature, ...], candidate_columns: Callable[[pd.DataFrame, Hardware], dict[str, np.ndarray]]
) -> FeatureSet:
    """The shared features of problems and pairs with a family's features of candidates."""
    return FeatureSet(PROBLEM, candidate, PAIR, problem_columns, candidate_columns, GemmPairColumns)
