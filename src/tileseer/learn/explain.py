"""Why a pick is bad: which features spoke for it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tileseer.learn.formula import Formula
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Contribution

FEATURES_OF_A_PICK = 5
"""Features named for a pick."""
FORMULA = "formula_us"
"""Name of the formula's time among the features: what a score starts from."""


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
