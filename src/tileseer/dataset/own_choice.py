"""What a library offers for a problem, and which of it the library would run itself.

A library such as cuDNN lists its candidates for a problem, in its own order. Nothing else is a candidate there, and its
own choice is the first of the list that runs and is right. A model replaces it only where it is sure to gain.
"""

import numpy as np

from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements

NONE = -1
"""No candidate."""
LOSS = 0.02
"""A pick that is slower than the library's own choice by more than this share loses."""
LOSERS = 0.03
"""Largest share of the held-out training problems that may lose."""
MARGINS = np.linspace(0.0, 0.5, 101)
"""Among these is the least lead of a score with which a candidate replaces the library's own choice."""


def of(measurements: Measurements) -> np.ndarray | None:
    """The candidate that the library would run itself for each problem, int [P], or ``NONE``; None without an order."""
    if measurements.rank is None or np.isnan(measurements.rank).all():
        return None
    rows = np.flatnonzero((measurements.status == efficiency.OK) & ~np.isnan(measurements.rank))
    rows = rows[np.lexsort((measurements.rank[rows], measurements.problem[rows]))]
    first = rows[np.diff(measurements.problem[rows], prepend=-1) != 0]
    own = np.full(len(measurements.problems), NONE)
    own[measurements.problem[first]] = measurements.candidate[first]
    return own


def offered(measurements: Measurements) -> np.ndarray:
    """What the library offers for each problem and what was tried of it, bool [P, Q]."""
    found = np.zeros((len(measurements.problems), len(measurements.candidates)), bool)
    tried = efficiency.in_pool(measurements) & (measurements.status != efficiency.SKIPPED)
    found[measurements.problem[tried], measurements.candidate[tried]] = True
    return found


def kept(scores: np.ndarray, own: np.ndarray, margin: float) -> np.ndarray:
    """Scores [P, Q] in which the own choice stands first, unless another leads it by more than ``margin``.

    An own choice that the model does not know, with a score of -inf, is kept: nothing says what would be gained.
    """
    scores = scores.copy()
    rows = np.flatnonzero(own != NONE)
    best, score = scores[rows].max(axis=1), scores[rows, own[rows]]
    keep = rows[~((best - score > margin) & np.isfinite(score))]
    top = scores[keep].max(axis=1)
    scores[keep, own[keep]] = np.where(np.isfinite(top), top + 1.0, 0.0)
    return scores


def margin(measurements: Measurements, scores: np.ndarray, own: np.ndarray) -> float:
    """The least of ``MARGINS`` with which few enough problems lose; the largest where none is enough.

    ``scores`` [P, Q] are of models that had not seen the problem; -inf where there is none.
    """
    rows = np.flatnonzero((own != NONE) & np.isfinite(scores).any(axis=1))
    achieved = efficiency.grid(measurements, rows)
    at = np.arange(len(rows))
    least = achieved[at, own[rows]] / (1 + LOSS)
    for value in MARGINS:
        picks = kept(scores[rows], own[rows], value).argmax(axis=1)
        if np.mean(achieved[at, picks] < least) <= LOSERS:
            return round(float(value), 6)
    return float(MARGINS[-1])
