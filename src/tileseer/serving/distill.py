"""Training of the served model: a few large-stepped trees that learn what the full model says, without its noise."""

from __future__ import annotations

import lightgbm
import numpy as np

from tileseer.core.errors import UserError
from tileseer.model import features, objectives
from tileseer.model.booster_text import canonical
from tileseer.serving.cascade import Cascade
from tileseer.settings.model import ServingParameters


def distill(
    untrained: Cascade, dims: np.ndarray, scores: np.ndarray, settings: ServingParameters, threads: int = 1
) -> str:
    """Return the LightGBM text of a served model; the same input gives the same bytes.

    ``dims`` [n, 19] are the problems to learn from, ``scores`` [n, Q] what the full model says of their pairs, -inf
    where a candidate cannot run the problem. The booster of ``untrained`` is not used.
    """
    problem, candidate = np.nonzero(np.isfinite(scores))
    if not len(problem):
        raise UserError(f"{untrained.operation}: no candidate can run a training problem; there is nothing to serve")
    if len(problem) > settings.max_rows:
        drawn = np.random.default_rng(settings.seed).choice(len(problem), settings.max_rows, replace=False)
        problem, candidate = problem[np.sort(drawn)], candidate[np.sort(drawn)]
    relative = scores[problem, candidate] - scores.max(axis=1)[problem]
    label = np.maximum(relative, np.log(settings.floor)) - untrained.offset[candidate]
    parameters = {
        "num_leaves": settings.num_leaves,
        "max_depth": settings.max_depth,
        "learning_rate": settings.learning_rate,
        "max_bin": 127,
        "feature_fraction": 0.7,
        "seed": settings.seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(
        untrained.features(dims, problem, candidate), label,
        feature_name=list(features.feature_set(untrained.family.features).names), params=parameters,
    )  # fmt: skip
    weight = np.exp(settings.near_best * relative)
    small = objectives.fit_within(data, label, problem, weight, parameters, settings.level_share, settings.trees)
    return canonical(small.model_to_string())
