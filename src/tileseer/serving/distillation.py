"""Distillation: the served model, a few trees with large steps, learns the scores of the full model.

It learns from the full model, not from the device, so labels cost nothing but time. With the problems of the training
set alone it would have to guess between them: augmentation adds unmeasured problems near them.
"""

import lightgbm
import numpy as np

from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError
from tileseer.model import features
from tileseer.model.trees import canonical
from tileseer.serving.cascade import Cascade
from tileseer.settings.model import ServingParameters

BATCH, IMAGE, CHANNELS = 1.5, 0.5, 1.0
"""Octaves by which a draw changes the batch, the image (all its axes alike) and, each by itself, C and K at most."""
UNIT = 8
"""Channels of a group that are a multiple of this stay one: a vector access divides them."""
LEARNING_RATE = 0.25
"""Shrinkage of each tree; large, so that the first trees alone give a good short list."""
FLOOR, NEAR_BEST = 0.4, 4.0
"""Predicted relative efficiencies below the floor are raised to it; a row weighs its own to the power ``NEAR_BEST``."""
MAX_ROWS = 700_000
"""Pairs that the small model learns from; of more, a seeded draw is taken."""
_AT = {name: position for position, name in enumerate(DIMS)}


def augmentation(dims: np.ndarray, count: int, seed: int) -> np.ndarray:
    """At most ``count`` convolutions near rows of ``dims`` (int64 [n, 19], columns ``DIMS``), int64 [m, 19].

    Filter, stride, padding, dilation and groups stay. Draws whose filter no longer fits into the image are dropped.
    """
    if not count:
        return dims[:0]
    draw = np.random.default_rng(seed)
    rows = dims[draw.integers(len(dims), size=count)].copy()

    def factor(octaves: float) -> np.ndarray:
        return 2.0 ** draw.uniform(-octaves, octaves, count)

    rows[:, _AT["N"]] = np.maximum(np.rint(rows[:, _AT["N"]] * factor(BATCH)), 1)
    image = factor(IMAGE)
    for name in ("Di", "Hi", "Wi"):
        old = rows[:, _AT[name]]
        rows[:, _AT[name]] = np.where(old > 1, np.maximum(np.rint(old * image), 1), old)
    groups = rows[:, _AT["G"]]
    for name in ("C", "K"):
        own = rows[:, _AT[name]] // groups
        unit = np.where(own % UNIT == 0, UNIT, 1)
        changed = np.maximum(np.rint(own * factor(CHANNELS) / unit), 1).astype(np.int64) * unit
        rows[:, _AT[name]] = groups * np.where(own > 1, changed, own)
    fits = np.ones(count, bool)
    for size, extent, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        reach = rows[:, _AT[f"dilation_{axis}"]] * (rows[:, _AT[extent]] - 1) + 1
        fits &= rows[:, _AT[size]] + 2 * rows[:, _AT[f"pad_{axis}"]] >= reach
    return rows[fits]


def distill(
    untrained: Cascade, dims: np.ndarray, scores: np.ndarray, settings: ServingParameters, threads: int = 1
) -> str:
    """The LightGBM text of a served model; the same input gives the same bytes.

    ``dims`` [n, 19] are the problems to learn from, ``scores`` [n, Q] what the full model says of their pairs, -inf
    where a candidate cannot run the problem. The booster of ``untrained`` is not used.
    """
    problem, candidate = np.nonzero(np.isfinite(scores))
    if not len(problem):
        raise UserError(f"{untrained.operation}: no candidate can run a training problem; there is nothing to serve")
    if len(problem) > MAX_ROWS:
        drawn = np.random.default_rng(settings.seed).choice(len(problem), MAX_ROWS, replace=False)
        problem, candidate = problem[np.sort(drawn)], candidate[np.sort(drawn)]
    relative = scores[problem, candidate] - scores.max(axis=1)[problem]
    label = np.maximum(relative, np.log(FLOOR))
    parameters = {
        "objective": "regression",
        "num_leaves": settings.num_leaves,
        "max_depth": settings.max_depth,
        "learning_rate": LEARNING_RATE,
        "max_bin": 127,
        "feature_fraction": 0.7,
        "seed": settings.seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(
        untrained.features(dims, problem, candidate), label, weight=np.exp(NEAR_BEST * relative),
        feature_name=list(features.feature_set(untrained.family.features).names), params=parameters,
    )  # fmt: skip
    small = lightgbm.train(parameters, data, num_boost_round=settings.trees)
    return canonical(small.model_to_string())
