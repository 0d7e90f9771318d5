"""Learning features of MIOpen's solvers, and of problems beside those that all libraries of their own choice have."""

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.features.library_problem import LIBRARY_PROBLEM, Tiles, fits, problem_columns
from tileseer.libraries.features.table import Columns, Feature, FeatureSet, column, raw
from tileseer.libraries.miopen.solvers import facts_of

SOLVER_TILES: Tiles = {
    "out_h": (2, 3, 4, 6),
    "out_w": (2, 3, 4, 6),
    "group_c": (4, 16),
    "group_k": (4, 16),
    "pixels": (32, 64, 128, 256),
    "batch_pixels": (32, 64, 128),
}
_OF_SOLVERS = (
    *LIBRARY_PROBLEM,
    *raw(
        "1",
        X="filter width",
        out_h="output height",
        out_w="output width",
        batch_pixels="output pixels of the batch",
        group_c="input channels of a group",
        group_k="output channels of a group",
        pad_w="padding along width",
    ),
    Feature("channels_c", "elements", "contiguous channels of C", column("run_c")),
    Feature("max_dilation", "1", "largest dilation", lambda p: _largest(p, "dilation")),
    Feature("max_padding", "1", "largest padding", lambda p: _largest(p, "pad")),
    *fits(SOLVER_TILES, ("Wi", "in_pixels", "out_w")),
)
"""Solvers are of more kinds than GEMMs, and there are times of a hundred thousand problems: what cuDNN's models are as
good without."""


def _largest(p: Columns, what: str) -> np.ndarray:
    return np.maximum(np.maximum(p[f"{what}_d"], p[f"{what}_h"]), p[f"{what}_w"])


_SOLVER_FEATURES = (Feature("solver", "code", "MIOpen's number of the solver", column("number"), categorical=True),)


def _solvers(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what candidate features are made of, float64 [Q] by name."""
    return {"number": np.array([facts_of(name).number for name in candidates["solver"]], np.float64)}


_LAYOUT_FEATURE = raw("code", layout="0: NCHW, 1: NHWC, of all tensors and also with depth")
MIOPEN_FEATURES = FeatureSet(_OF_SOLVERS, _SOLVER_FEATURES, (), problem_columns, _solvers, with_layout="miopen_layouts")
MIOPEN_LAYOUTS = FeatureSet((*_OF_SOLVERS, *_LAYOUT_FEATURE), _SOLVER_FEATURES, (), problem_columns, _solvers)
