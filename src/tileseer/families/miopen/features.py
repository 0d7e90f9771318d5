"""Learning features of solvers: those of problems (``solver_features``) and the solver."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tileseer.families.feature_table import Feature, FeatureSet, Pairs, column
from tileseer.families.miopen.solvers import SOLVERS
from tileseer.families.solver_features import PROBLEM, problem_columns
from tileseer.gpu.hardware import Hardware

CANDIDATE = (Feature("solver", "code", "MIOpen's number of the solver", column("number"), categorical=True),)


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Float64 [Q] by name."""
    return {"number": np.array([SOLVERS[name].number for name in candidates["solver"]], np.float64)}


FEATURE_SETS: Mapping[str, FeatureSet] = {
    "miopen": FeatureSet(PROBLEM, CANDIDATE, (), problem_columns, candidate_columns, Pairs)
}
