"""Learning features of plans: those of problems (``solver``), the engine, and its knobs of known meaning."""

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.libraries.cudnn import engines
from tileseer.libraries.cudnn.kernel import Plan
from tileseer.libraries.features.library_problem import LIBRARY_PROBLEM, problem_columns
from tileseer.libraries.features.table import Feature, FeatureSet, column, raw

KNOB_NUMBERS = {
    "block_k": engines.BLOCK_K,
    "tile_k": engines.TILE_K,
    "stages": engines.STAGES,
    "workspace": engines.WORKSPACE,
    "cluster_m": engines.CLUSTER_M,
    "cluster_n": engines.CLUSTER_N,
}
"""Features that are the setting of a knob."""
NO_KNOB = -1
"""Setting of a knob that an engine does not have."""

CUDNN_CANDIDATE = (
    Feature("engine", "code", "cuDNN's number of the engine", column("engine"), categorical=True),
    Feature("tile", "code", "engine and setting of knob 2, its tile", column("tile"), categorical=True),
    *raw(
        "1",
        split="slices of the reduction: knob 0 or 17, whichever is larger, at least 1",
        **{name: f"setting of knob {knob}, {NO_KNOB} without" for name, knob in KNOB_NUMBERS.items()},
    ),
)


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware) -> dict[str, np.ndarray]:
    """Return what candidate features are made of, float64 [Q] by name."""
    plans = [Plan.parse(name) for name in candidates["kernel"]]
    columns = {
        "engine": [plan.engine for plan in plans],
        "tile": [engines.tile_code(plan.engine, plan.settings.get(engines.TILE)) for plan in plans],
        "split": [
            max(1, plan.settings.get(engines.SPLIT_K, 1), plan.settings.get(engines.SPLIT_K_SLICES, 1))
            for plan in plans
        ],
        **{name: [plan.settings.get(knob, NO_KNOB) for plan in plans] for name, knob in KNOB_NUMBERS.items()},
    }
    return {name: np.array(values, np.float64) for name, values in columns.items()}


CUDNN_FEATURES = FeatureSet(LIBRARY_PROBLEM, CUDNN_CANDIDATE, (), problem_columns, candidate_columns)
