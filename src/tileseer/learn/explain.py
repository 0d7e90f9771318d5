"""Why a pick is bad: which features spoke for it, and whether training had anything like the problem."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.learn.features import Features
from tileseer.learn.formula import Formula
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Contribution

FEATURES_OF_A_PICK = 5
"""Features named for a pick."""
FORMULA = "formula_us"
"""Name of the formula's time among the features: what a score starts from."""
TRAINING_PROBLEMS_AT_A_TIME = 256
"""Problems whose distances are computed at a time."""


def contributions(
    model: Model, problems: pd.DataFrame, candidates: pd.DataFrame, pick: np.ndarray, best: np.ndarray
) -> list[list[Contribution]]:
    """Return the features that spoke most for the pick against the best candidate, for each of R problems.

    ``pick`` and ``best`` (int [R]) are rows of ``candidates``. A contribution is the difference of the two SHAP values
    (LightGBM's exact TreeSHAP) in the space of the score: positive ones made the pick look better than the best.
    """
    count = len(problems)
    rows = np.tile(np.arange(count), 2)
    matrix = model.features.matrix(problems, candidates, rows, np.concatenate([pick, best]))
    shap = np.asarray(model.booster.predict(matrix, pred_contrib=True, num_threads=1))[:, :-1]
    names = list(model.spec.feature_names)
    if model.spec.formula is not None:
        whole = model.spec.formula.model_copy(update={"weight": 1.0})
        says = Formula(problems, candidates, model.hardware, whole).score(rows, np.concatenate([pick, best]))
        names.append(FORMULA)
        matrix = np.column_stack([matrix, np.exp(-says)])
        shap = np.column_stack([shap, model.spec.formula.weight * says])
    difference = shap[:count] - shap[count:]
    order = np.argsort(-np.abs(difference), axis=1, kind="stable")[:, :FEATURES_OF_A_PICK]
    return [
        [
            Contribution(
                feature=names[i],
                contribution=round(float(difference[row, i]), 6),
                of_pick=float(f"{matrix[row, i]:.6g}"),
                of_best=float(f"{matrix[count + row, i]:.6g}"),
            )
            for i in order[row]
            if difference[row, i] != 0
        ]
        for row in range(count)
    ]


class Novelty:
    """How unlike the training problems other problems are, by the problem features of a model."""

    def __init__(self, training: pd.DataFrame, problems: pd.DataFrame, features: Features) -> None:
        self._names = [f.name for f in features.set.problem if not f.name.startswith("hw_")]
        self._training, self._values = (_values(table, features, self._names) for table in (training, problems))
        seen, new = np.log2(self._training + 1), np.log2(self._values + 1)
        spread = seen.std(axis=0)
        # The spread of equal values may be a rounding error.
        scale = np.where(spread > 1e-9, spread, 1.0)
        self._seen, self._new = seen / scale, new / scale

    def away(self, row: int) -> np.ndarray:
        """Return how unlike each training problem a problem is, [T]."""
        return np.asarray(np.sqrt(((self._seen - self._new[row]) ** 2).sum(axis=1)))

    def nearest(self, row: int) -> int:
        """Return the training problem most like a problem."""
        return int(self.away(row).argmin())

    def percentile(self, row: int) -> float:
        """Return the percentage of training problems that are nearer to their nearest neighbour than a problem is."""
        return float(100 * np.mean(self._usual < self.away(row).min()))

    @cached_property
    def _usual(self) -> np.ndarray:
        """Distance of each training problem from its nearest neighbour, [T], from a few rows at a time."""
        square, least = (self._seen**2).sum(axis=1), np.empty(len(self._seen))
        for start in range(0, len(square), TRAINING_PROBLEMS_AT_A_TIME):
            part = slice(start, start + TRAINING_PROBLEMS_AT_A_TIME)
            away = square[part, None] + square - 2 * self._seen[part] @ self._seen.T
            np.fill_diagonal(away[:, start:], np.inf)
            least[part] = away.min(axis=1)
        return np.sqrt(np.maximum(least, 0.0))

    def outside(self, row: int) -> list[str]:
        """Return the problem features whose value no training problem reaches, with the range that training covers."""
        low, high = self._training.min(axis=0), self._training.max(axis=0)
        return [
            f"{name} {value:.6g}, trained on {low[i]:.6g} to {high[i]:.6g}"
            for i, (name, value) in enumerate(zip(self._names, self._values[row], strict=True))
            if not low[i] <= value <= high[i]
        ]


def _values(table: pd.DataFrame, features: Features, names: list[str]) -> np.ndarray:
    columns = features.problem_columns(table)
    values = {f.name: np.asarray(f.values(columns), np.float64) for f in features.set.problem}
    return np.stack([values[name] for name in names], axis=1)
