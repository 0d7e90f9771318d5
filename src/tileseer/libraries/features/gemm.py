"""The learning features that implicit GEMMs of every library share: of problems, of tiles, and of pairs of them.

Sizes are those of the implicit GEMM (``implicit_gemm``), tiles are the kernel's own (m, n, k), a batch is a group after
merging. There are no logarithms, which C++ has not: a tree splits on the order of values only. ``PROBLEM`` is also of
libraries without tiles (``library_problem``).
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.facts.operations import ELEMENT_BYTES
from tileseer.libraries.features.table import Columns, Feature, FeatureSet, PairColumns, column, raw
from tileseer.libraries.rules import capped_vectors
from tileseer.problems import shapes
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS
from tileseer.problems.shapes import element_bytes

LEAST_OCCUPANCY = np.float32(0.1)
"""Resident blocks of a kernel of which the estimate says that none fits, or says nothing."""
LARGEST_VECTOR = 8
"""Elements of 16 bits that an instruction loads at most."""

PROBLEM = (
    *raw(
        "1",
        C="input channels over all groups",
        K="output channels over all groups",
        G="groups",
        Di="input depth",
        Wi="input width",
        Y="filter height",
        stride_h="stride along height",
    ),
    *raw(
        "1",
        gemm_m="rows of the implicit GEMM of one group (of one sub-GEMM for bwd_data)",
        gemm_n="columns of the implicit GEMM of one group",
        gemm_k="reduction length of the implicit GEMM",
        sub_gemms="independent GEMMs a strided bwd_data problem falls into",
    ),
    Feature("filter_volume", "1", "Z * Y * X", lambda p: p["Z"] * p["Y"] * p["X"]),
    Feature("channels_a", "elements", "contiguous channels of A", column("run_a")),
    Feature("channels_b", "elements", "contiguous channels of B", column("run_b")),
    Feature(
        "roofline_ratio", "1",
        "useful FLOP / unique bytes / (peak FLOP rate / memory bandwidth): above 1 the problem is compute bound",
        lambda p: p["flops"] / p["unique_bytes"] / p["balance"],
    ),
    Feature(
        "gemm_k_aspect", "1", "gemm_k / sqrt(gemm_m * gemm_n)",
        lambda p: p["gemm_k"] / np.sqrt(p["gemm_m"] * p["gemm_n"]),
    ),
    Feature(
        "output_per_cu", "elements", "GEMM output elements of all groups and sub-GEMMs a compute unit",
        lambda p: p["gemm_m"] * p["gemm_n"] * p["gemm_batch"] * p["sub_gemms"] / p["compute_units"],
    ),
)  # fmt: skip
"""Of problems. Trees need neither two features of one order nor what the features of pairs imply (N, useful FLOP)."""

ALIGNED = raw(
    "elements",
    aligned_c="gcd of 8 and the input channels of a group: the widest vector of them",
    aligned_k="gcd of 8 and the output channels of a group",
)
"""Of problems, for kernels with vectors of a fixed width. Trees do not see what divides a number: without these they
take kernels of narrow vectors, which are the fastest ones of odd channels, for other channels too."""

TILES = (
    *raw(
        "elements",
        tile_m="block tile m",
        tile_n="block tile n",
        tile_k="block tile k",
        warp_tile_m="matrix instruction m",
        warp_tile_n="matrix instruction n",
        vec_a="vector load of A",
        vec_b="vector load of B",
    ),
    *raw("1", wave_m="waves along m", wave_n="waves along n"),
)
"""Of candidates: fields that every library's kernels have."""
SPLIT_K = raw("1", split_k="slices of the reduction (launch knob)")
BUILT = (
    *raw("registers", vgprs="vector registers of a lane, from the build"),
    *raw("B", lds_bytes="LDS of a block, from the build"),
    *raw("1", occupancy="blocks resident on a compute unit, from the build"),
    Feature(
        "tile_intensity",
        "FLOP/element",
        "tile_m * tile_n / (tile_m + tile_n): reuse of a loaded element",
        lambda c: c["tile_area"] / (c["tile_m"] + c["tile_n"]),
    ),
    *raw("1", loads_a="vector loads of A a thread and k step", loads_b="vector loads of B a thread and k step"),
)
"""Of candidates: what the build says of them, and what follows from tiles, waves and vectors."""


def _add_pair_columns(x: PairColumns) -> None:
    """Add what the features of pairs share, float32 [n] each.

    GEMM sizes above 2**24 are rounded to float32 before the tiles are counted: a relative error below 1e-7, the same
    in training and in selection. Stream-K launches the blocks that fit at once, split-K one block a slice.
    """
    merged = x["num_groups_to_merge"]
    x["rows"], x["columns"] = x["gemm_m"] * merged, x["gemm_n"] * merged
    x["tiles_m"], x["tiles_n"] = np.ceil(x["rows"] / x["tile_m"]), np.ceil(x["columns"] / x["tile_n"])
    x["tiles_k"] = np.ceil(x["gemm_k"] / x["tile_k"])
    output_tiles = x["tiles_m"] * x["tiles_n"] * np.ceil(x["gemm_batch"] / merged) * x["sub_gemms"]
    work = output_tiles * x["tiles_k"]
    # Blocks that the device holds at once.
    x["slots"] = np.maximum(x["occupancy"], LEAST_OCCUPANCY) * x["compute_units"]
    x["slices"] = np.minimum(x["split_k"], x["tiles_k"])
    x["blocks"] = np.where(x["streamk"] > 0, np.minimum(x["slots"], work), output_tiles * x["slices"])
    x["k_steps"] = np.ceil(work / x["blocks"])
    x["rounds"] = np.ceil(x["blocks"] / x["slots"])
    # Of the busiest compute unit.
    x["unit_blocks"] = np.ceil(x["blocks"] / x["compute_units"])
    x["unit_steps"] = x["unit_blocks"] * x["k_steps"]
    for operand in "abc":
        x[f"vector_runs_{operand}"] = x[f"run_{operand}"] * merged / x[f"vec_{operand}"]


PAIR = (
    *raw(
        "1",
        tiles_n="ceil(gemm_n * merged groups / tile_n)",
        k_steps="reduction steps of one block: ceil(output tiles * k tiles / blocks)",
    ),
    Feature("fill_m", "1", "gemm_m * merged groups / (tiles_m * tile_m): 1 - padding waste",
            lambda x: x["rows"] / (x["tiles_m"] * x["tile_m"])),
    Feature("fill_n", "1", "gemm_n * merged groups / (tiles_n * tile_n)",
            lambda x: x["columns"] / (x["tiles_n"] * x["tile_n"])),
    Feature("fill_k", "1", "gemm_k / (tiles_k * tile_k)", lambda x: x["gemm_k"] / (x["tiles_k"] * x["tile_k"])),
    Feature("blocks_per_cu", "1", "blocks of the launch, split-K and stream-K included / compute units",
            lambda x: x["blocks"] / x["compute_units"]),
    Feature("waves", "1", "blocks / (compute units * occupancy)", lambda x: x["blocks"] / x["slots"]),
    Feature("wave_fill", "1", "waves / ceil(waves): wave quantisation",
            lambda x: x["blocks"] / (x["slots"] * x["rounds"])),
    Feature("unit_fill", "1", "blocks / (compute units * blocks of the busiest): balance over compute units",
            lambda x: x["blocks"] / (x["compute_units"] * x["unit_blocks"])),
    Feature("chain_loads", "1", "rounds * k_steps * (loads_a + loads_b): vector loads of a thread one after the other",
            lambda x: x["rounds"] * x["k_steps"] * x["loads"]),
    Feature("loads_overhead", "1/FLOP", "wave loads of the busiest compute unit * compute units / useful FLOP",
            lambda x: x["unit_steps"] * x["wave_loads"] / x["flops_per_cu"]),
    Feature("matrix_overhead", "1", "matrix work of the busiest compute unit * compute units / useful FLOP",
            lambda x: x["unit_steps"] * x["step_flops"] / x["flops_per_cu"]),
    Feature("useful_fraction", "1", "useful FLOP / FLOP of all blocks",
            lambda x: x["flops"] / (x["blocks"] * x["k_steps"] * x["step_flops"])),
    Feature("epilogue_elements", "elements", "output elements the busiest compute unit stores",
            lambda x: x["unit_blocks"] * x["tile_area"]),
    Feature("epilogue_share", "1", "tile_area / (k_steps * (tile_m + tile_n) * tile_k): stores per load",
            lambda x: x["tile_area"] / (x["k_steps"] * x["step_elements"])),
    Feature("reload_factor", "1", "blocks * k_steps * (tile_m + tile_n) * tile_k * element bytes / unique bytes",
            lambda x: x["blocks"] * x["k_steps"] * x["step_bytes"] / x["unique_bytes"]),
    Feature("partial_bytes", "B", "fp32 partial results of split-K: 4 * output elements * slices",
            lambda x: x["output_elements"] * x["slices"]),
    *(
        Feature(f"vector_runs_{x}", "1", f"merged channel run of {x.upper()} / vec_{x}", column(f"vector_runs_{x}"))
        for x in "abc"
    ),
)  # fmt: skip


def problem_columns(dims: Columns, operation: Operation, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what problem and pair features are made of, float64 [P] by name.

    ``dims`` are the 19 dimensions, int64 [P] each. Plain arithmetic, as ``shapes.gemm_columns``.
    """
    gemm = shapes.gemm_columns(dims, operation.variant, ELEMENT_BYTES[operation.dtype])
    columns = {name: dims[name].astype(np.float64) for name in DIMS}
    columns |= {name: values.astype(np.float64) for name, values in gemm.items()}
    for name in "CK":
        columns[f"aligned_{name.lower()}"] = np.gcd(dims[name] // dims["G"], LARGEST_VECTOR).astype(np.float64)
    peak = hardware.peak_tflops(operation.dtype)
    constants = {"balance": peak / hardware.hbm_tb_per_s, "compute_units": hardware.compute_units}
    columns |= {name: np.ones_like(columns["N"]) * float(value) for name, value in constants.items()}
    columns["flops_per_cu"] = columns["flops"] / hardware.compute_units
    columns["output_elements"] = columns["gemm_m"] * columns["gemm_n"] * columns["gemm_batch"] * 4
    return columns


def numbers(candidates: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the columns of candidates that are numbers or flags, float64 [Q] by name."""
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
    """Return the shared features of problems and pairs with a library's features of candidates."""
    return FeatureSet((*PROBLEM, *ALIGNED), candidate, PAIR, problem_columns, candidate_columns, _add_pair_columns)
