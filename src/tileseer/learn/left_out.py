"""Layers that are left out of training in turn: which, and what models that have not seen them lose there."""

from collections.abc import Sequence

import numpy as np

from tileseer.data.dataset import Dataset
from tileseer.learn import own_choice
from tileseer.learn.evidence import TIMED, Judged
from tileseer.learn.rows import NO_FOLD, deal
from tileseer.problems.problem import DIMS

SIZES_OF_A_RUN = ("N", "Di", "Hi", "Wi")
"""Dimensions that one layer has several of; times at neighbouring sizes would tell a model those of an unseen one."""


def layers_at_any_size(pairs: Dataset) -> np.ndarray:
    """Return the layer of each problem, the same at any size of image and batch and in any layout, text [P]."""
    names = [name for name in DIMS if name not in SIZES_OF_A_RUN]
    return np.array([",".join(map(str, row)) for row in pairs.problems[names].to_numpy().tolist()])


def judged_folds(pairs: Dataset, layers: np.ndarray, folds: int, judged: int, seed: int) -> np.ndarray:
    """Return the fold in which the layer of each problem (text [P]) is left out, int [P].

    Of ``folds`` the first ``judged`` are left out in turn; the layers of the others only train, and are in ``NO_FOLD``.
    """
    fold = deal(layers, pairs.problem, folds, seed)
    return np.where(fold < judged, fold, NO_FOLD)


def judged_picks(pairs: Dataset, rows: np.ndarray, fold: np.ndarray, scores: np.ndarray, offers: np.ndarray) -> Judged:
    """Return what is lost on the problems ``rows`` (int [R]) by models that have not seen them.

    ``scores`` (float64 [P, Q]) are theirs, ``offers`` (bool [Q]) the candidates that a model may offer. The first pick
    has the highest score; what runs without the model is the library's own choice, or the first of a fixed order.
    """
    own = own_choice.library_choices(pairs)
    offered = own_choice.offered(pairs) & offers
    without = own_choice.in_fixed_order(pairs, rows, fold, offered) if own is None else own[rows]
    achieved, at = pairs.grid(rows), np.arange(len(rows))
    known = np.where(offered[rows], scores[rows], -np.inf)
    picked = np.where(np.isfinite(known).any(axis=1), achieved[at, known.argmax(axis=1)], 0.0)
    unpicked = np.where(without == own_choice.NONE, 0.0, achieved[at, without])
    if own is not None:
        # The library's own choice is timed beside those of the model.
        known[at, own[rows]] = -np.inf
    timed = reached_by_lists(known, achieved, TIMED)
    return Judged(rows, picked, unpicked, timed if own is None else np.maximum(timed, unpicked[:, None]))


def reached_by_lists(scores: np.ndarray, achieved: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return the efficiency of the fastest of the first ``counts`` candidates, float64 [R, counts].

    By scores, float64 [R, Q], -inf of those that are not listed; ``achieved`` (the same shape) are efficiencies.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, : max(counts)]
    best = np.maximum.accumulate(
        np.take_along_axis(np.where(np.isfinite(scores), achieved, 0.0), order, axis=1), axis=1
    )
    return np.asarray(best[:, np.minimum(counts, best.shape[1]) - 1])
