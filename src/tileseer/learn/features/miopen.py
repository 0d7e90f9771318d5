"""Learning features of solvers: those of problems (``solver_features``) and the solver."""

import numpy as np
import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.miopen.solvers import SOLVERS
from tileseer.learn.features.solver import PROBLEM, problem_columns
from tileseer.learn.features.table import Feature, FeatureSet, column

CANDIDATE = (Feature("solver", "code", "MIOpen's number of the solver", column("number"), categorical=True),)


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Float64 [Q] by name."""
    return {"number": np.array([SOLVERS[name].number for name in candidates["solver"]], np.float64)}


MIOPEN = FeatureSet(PROBLEM, CANDIDATE, (), problem_columns, candidate_columns)
