"""Rows of MIOpen's find-db as tables, and the regression on them."""

from __future__ import annotations

from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.learn.boosting import LEAST_EFFICIENCY, WEIGHT_POWER
from tileseer.libraries.miopen.features import MIOPEN_FEATURES
from tileseer.libraries.miopen.solvers import facts_of
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS

FEATURES = MIOPEN_FEATURES
PARAMETERS = {
    "objective": "regression", "num_leaves": 63, "learning_rate": 0.1, "feature_fraction": 0.7, "lambda_l2": 1.0,
    "max_bin": 127, "seed": 1, "num_threads": 1, "verbosity": -1,
}  # fmt: skip


def table(path: Path, operation: str, problems: int, seed: int = 1) -> pd.DataFrame:
    """Rows of one operation in 2D, NCHW, of at most ``problems`` problems.

    Columns: ``DIMS``, ``solver``, ``ms``, ``problem``.
    """
    variant, _, dtype = operation.rpartition("_")
    rows = pd.read_parquet(path, filters=[("direction", "==", variant), ("dtype", "==", dtype)])
    rows = rows[(rows["layout"] == "NCHW") & (rows["ms"] > 0)]
    rows = rows.assign(solver=rows["solver"].astype(str), problem=rows.groupby(list(DIMS)).ngroup())
    kept = np.random.default_rng(seed).permutation(rows["problem"].max() + 1)[:problems]
    # The database has the fastest first: in that order, equal scores would pick it.
    return rows[rows["problem"].isin(kept)].sample(frac=1, random_state=seed, ignore_index=True)


def matrix(rows: pd.DataFrame, operation: str, hardware: Hardware) -> np.ndarray:
    """Features of rows, float32 [n, F]; the solver's number is the last."""
    dims = {name: rows[name].to_numpy(np.int64) for name in DIMS}
    dims |= {"ndim": np.full(len(rows), 2), "layout": np.zeros(len(rows), np.int64)}
    columns = FEATURES.problem_columns(dims, Operation.parse(operation), hardware)
    values = [np.asarray(feature.values(columns), np.float32) for feature in FEATURES.problem]
    return np.column_stack([*values, [facts_of(name).number for name in rows["solver"]]])


def fitted(features: np.ndarray, label: np.ndarray, weight: np.ndarray, trees: int) -> lightgbm.Booster:
    """The regression of ``learn/boosting.py`` on rows; fewer of them get smaller leaves."""
    used = PARAMETERS | {"min_data_in_leaf": min(20, max(3, len(label) // 50)), "min_data_per_group": 5}
    data = lightgbm.Dataset(features, label, weight=weight, categorical_feature=[features.shape[1] - 1], params=used)
    return lightgbm.train(used, data, num_boost_round=trees)


def label_of(efficiency: np.ndarray) -> np.ndarray:
    """What is learnt of rows."""
    return np.log(np.maximum(efficiency, LEAST_EFFICIENCY))


def weight_of(efficiency: np.ndarray) -> np.ndarray:
    """How much a row counts."""
    return efficiency**WEIGHT_POWER


def efficiency_of(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Efficiency of each row within its problem."""
    return (rows.groupby("problem")[column].transform("min") / rows[column]).to_numpy()
