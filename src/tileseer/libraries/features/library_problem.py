"""Learning features of problems for all that a library runs by itself.

A library's solver or engine decides by itself what it runs, so no tile is known, and nothing belongs to the pair. A
problem's features are those of every problem, and how well it fits sizes that kernels work in.
"""

import numpy as np

from tileseer.facts.hardware import Hardware
from tileseer.libraries.features import gemm
from tileseer.libraries.features.table import Columns, Feature, raw
from tileseer.problems.operation import Operation
from tileseer.problems.shapes import output_extents

Tiles = dict[str, tuple[int, ...]]
"""Sizes that an extent is cut into."""
LARGEST_POWER = 4096


def fits(tiles: Tiles, powers: tuple[str, ...]) -> tuple[Feature, ...]:
    """Return features of how well extents fit tiles of some sizes, and powers of 2."""
    return (
        *(_fill(name, size) for name, sizes in tiles.items() for size in sizes),
        *(_power(name) for name in powers),
    )


def _fill(name: str, size: int) -> Feature:
    meaning = f"{name} / (tiles of {size} * {size}): 1 - padding waste"
    return Feature(f"fill_{name}_{size}", "1", meaning, lambda p: p[name] / (np.ceil(p[name] / size) * size))


def _power(name: str) -> Feature:
    meaning = f"largest power of 2 that divides {name}, at most {LARGEST_POWER}"
    return Feature(f"power_{name}", "1", meaning, lambda p: np.gcd(p[name].astype(np.int64), LARGEST_POWER))


PROBLEM_TILES: Tiles = {"group_c": (8, 32, 64), "group_k": (8, 32, 64), "batch_pixels": (256,)}
LIBRARY_PROBLEM = (
    *gemm.PROBLEM,
    *raw(
        "1",
        N="batch size",
        Hi="input height",
        stride_w="stride along width",
        pad_h="padding along height",
        pixels="output pixels of an image",
    ),
    *raw(
        "B",
        input_bytes="input tensor",
        filter_bytes="filter tensor",
        output_bytes="output tensor",
        unique_bytes="bytes read once plus bytes written",
    ),
    Feature("useful_gflop", "GFLOP", "2 * N * Do * Ho * Wo * K * C/G * Z * Y * X / 1e9", lambda p: p["flops"] / 1e9),
    Feature("gemm_aspect", "1", "gemm_m / gemm_n", lambda p: p["gemm_m"] / p["gemm_n"]),
    *fits(PROBLEM_TILES, ("group_c", "group_k", "N")),
)
"""Of problems: group_c and group_k are the channels of a group, batch_pixels the output pixels of the batch."""


def problem_columns(dims: Columns, operation: Operation, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what the features are made of, float64 [P] by name; see ``gemm.problem_columns``."""
    columns = gemm.problem_columns(dims, operation, hardware)
    outputs = output_extents(dims)
    sizes = {
        "out_h": outputs[1],
        "out_w": outputs[2],
        "group_c": dims["C"] // dims["G"],
        "group_k": dims["K"] // dims["G"],
        "pixels": outputs[0] * outputs[1] * outputs[2],
        "in_pixels": dims["Di"] * dims["Hi"] * dims["Wi"],
    }
    sizes["batch_pixels"] = dims["N"] * sizes["pixels"]
    columns |= {name: values.astype(np.float64) for name, values in sizes.items()}
    columns["layout"] = dims["layout"].astype(np.float64)
    return columns
