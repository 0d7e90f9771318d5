"""Features of MIOpen's solvers, and of problems for all that a library runs.

A library's solver or engine decides by itself what it runs, so no tile is known, and nothing belongs to the pair. A
problem's features are those of every problem, and how well it fits sizes that kernels work in.
"""

import numpy as np
import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.miopen.solvers import SOLVERS
from tileseer.learn.features import gemm
from tileseer.learn.features.table import Columns, Feature, FeatureSet, column, raw
from tileseer.problems.operation import Operation

TILES = {"group_c": (8, 32, 64), "group_k": (8, 32, 64), "batch_pixels": (256,)}
"""Sizes that channels and pixels are cut into."""
POWERS = ("group_c", "group_k", "N")
LARGEST_POWER = 4096

PROBLEM = (
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
    *raw(
        "1",
        **{
            f"fill_{name}_{size}": f"{name} / (tiles of {size} * {size}): 1 - padding waste"
            for name, sizes in TILES.items()
            for size in sizes
        },
        **{f"power_{name}": f"largest power of 2 that divides {name}, at most {LARGEST_POWER}" for name in POWERS},
    ),
)
"""Of problems: group_c and group_k are the channels of a group, batch_pixels the output pixels of the batch."""


def problem_columns(dims: Columns, operation: Operation, hardware: Hardware) -> dict[str, np.ndarray]:
    """What the features are made of, float64 [P] by name; see ``gemm.problem_columns``."""
    columns = gemm.problem_columns(dims, operation, hardware)
    outputs = []
    for image, extent, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        reach = dims[f"dilation_{axis}"] * (dims[extent] - 1)
        outputs.append((dims[image] + 2 * dims[f"pad_{axis}"] - reach - 1) // dims[f"stride_{axis}"] + 1)
    sizes = {
        "group_c": dims["C"] // dims["G"],
        "group_k": dims["K"] // dims["G"],
        "pixels": outputs[0] * outputs[1] * outputs[2],
    }
    sizes["batch_pixels"] = dims["N"] * sizes["pixels"]
    columns |= {name: values.astype(np.float64) for name, values in sizes.items()}
    columns["layout"] = dims["layout"].astype(np.float64)
    for name, tiles in TILES.items():
        for tile in tiles:
            columns[f"fill_{name}_{tile}"] = columns[name] / (np.ceil(columns[name] / tile) * tile)
    for name in POWERS:
        columns[f"power_{name}"] = np.gcd((sizes | dict(dims))[name], LARGEST_POWER).astype(np.float64)
    return columns


_CANDIDATE = (Feature("solver", "code", "MIOpen's number of the solver", column("number"), categorical=True),)


def _solvers(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Float64 [Q] by name."""
    return {"number": np.array([SOLVERS[name].number for name in candidates["solver"]], np.float64)}


_LAYOUT = raw("code", layout="0: NCHW, 1: NHWC, of all tensors and also with depth")
MIOPEN = FeatureSet(PROBLEM, _CANDIDATE, (), problem_columns, _solvers)
MIOPEN_LAYOUTS = FeatureSet((*PROBLEM, *_LAYOUT), _CANDIDATE, (), problem_columns, _solvers)
