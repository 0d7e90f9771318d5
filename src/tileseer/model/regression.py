"""The regression that every model is: LightGBM on how fast a pair is within its problem.

The label is ln(efficiency), the weight efficiency squared: what decides a pick is the order of the fast candidates.
With a start, a formula's scores or another model's trees, trees learn what it misses, and a problem's level is left
out: the best of a few measured rows need not be its best candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from tileseer.core.progress import Progress
from tileseer.model.rows import Rows
from tileseer.settings.model import TrainingParameters

FLOOR = 0.05
"""Efficiencies below this are raised to it: how bad a bad kernel is does not matter."""
NEAR_BEST = 2
"""Weight of a row: its efficiency to this power."""
TRUST = 1.0
"""What a formula's slope of 1 weighs beside the rows: as much as some ten of them."""
FIXED = {"objective": "regression", "max_bin": 127, "lambda_l2": 1.0}
"""LightGBM's parameters that nobody had a reason to change."""


@dataclass(frozen=True)
class Table:
    """Rows with their features, binned once for every fit."""

    rows: Rows
    matrix: np.ndarray
    binned: lightgbm.Dataset
    """The rows that learn, in their order."""
    position: np.ndarray
    """Row of ``binned`` of each row, -1 where it does not learn."""
    prior: lightgbm.Booster | None = None
    """Trees to start from; a fit adds its own to them."""
    start: np.ndarray | None = None
    """Scores to start from; a fit's trees are added to them."""


def parameters(settings: TrainingParameters, threads: int) -> dict[str, Any]:
    """LightGBM's parameters."""
    return FIXED | {
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_child_samples,
        "feature_fraction": settings.feature_fraction,
        "seed": settings.seed,
        "deterministic": True,
        # Column-wise histograms are summed by one thread each: the sums do not depend on the number of threads. One
        # thread alone makes the same sums row by row, in two thirds of the time.
        "force_col_wise": threads != 1,
        "force_row_wise": threads == 1,
        "num_threads": threads,
        "verbosity": -1,
    }


def table(
    rows: Rows, matrix: np.ndarray, names: Sequence[str], categorical: Sequence[str], settings: TrainingParameters,
    threads: int, prior: lightgbm.Booster | None = None, start: np.ndarray | None = None,
) -> Table:  # fmt: skip
    """Bin the rows that learn."""
    learn = np.flatnonzero(rows.learn)
    binned = lightgbm.Dataset(
        matrix[learn], np.zeros(len(learn)), feature_name=list(names), categorical_feature=list(categorical),
        params=parameters(settings, threads), free_raw_data=prior is None,
    ).construct()  # fmt: skip
    position = np.full(len(rows.problem), -1)
    position[learn] = np.arange(len(learn))
    return Table(rows, matrix, binned, position, prior, start)


def fit(
    data: Table, learnt: np.ndarray, settings: TrainingParameters, trees: int, threads: int,
    progress: Progress | None = None,
) -> lightgbm.Booster:  # fmt: skip
    """A model fitted to the rows ``learnt`` (sorted positions, all of them learning); ``progress`` counts its trees."""
    used = parameters(settings, threads)
    part = data.binned.subset(data.position[learnt].tolist(), params=used)
    problem, efficiency = data.rows.problem[learnt], data.rows.efficiency[learnt]
    weights, label = weight(efficiency), target(efficiency)
    if data.start is not None:
        label = centred(problem, label - data.start[learnt], weights)
    if data.prior is not None:
        known = np.asarray(data.prior.predict(data.matrix[learnt], num_threads=threads))
        label = known + centred(problem, label - known, weights)
    part.construct().set_label(label).set_weight(weights)
    counted = None if progress is None else [lambda _: progress.add()]
    return lightgbm.train(used, part, num_boost_round=trees, init_model=data.prior, callbacks=counted)


def weight(efficiency: np.ndarray) -> np.ndarray:
    """What rows of these efficiencies (0..1) weigh."""
    return np.asarray(efficiency**NEAR_BEST)


def target(efficiency: np.ndarray) -> np.ndarray:
    """What is learnt of efficiencies (0..1)."""
    return np.log(np.maximum(efficiency, FLOOR))


def slope(rows: Rows, says: np.ndarray) -> float:
    """How far the rows that learn follow scores ``says`` [n]: least squares of the differences within problems.

    Few rows leave it near 1.
    """
    at = np.flatnonzero(rows.learn)
    problem, weights = rows.problem[at], weight(rows.efficiency[at])
    said = centred(problem, says[at], weights)
    label = centred(problem, target(rows.efficiency[at]), weights)
    found = (np.sum(weights * said * label) + TRUST) / (np.sum(weights * said**2) + TRUST)
    return max(float(found), 0.0)


def predict(booster: lightgbm.Booster, data: Table, at: np.ndarray, threads: int) -> np.ndarray:
    """Scores of some rows, float64."""
    score = np.asarray(booster.predict(data.matrix[at], num_threads=threads))
    return score if data.start is None else score + data.start[at]


def centred(problem: np.ndarray, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Values minus the weighted mean of their problem."""
    number = np.unique(problem, return_inverse=True)[1]
    return np.asarray(values - (np.bincount(number, weight * values) / np.bincount(number, weight))[number])
