"""What a library offers for a problem, and which of it the library would run itself.

A library such as cuDNN lists its candidates for a problem, in its own order. Nothing else is a candidate there, and its
own choice is the first of the list that runs. A model replaces it only where it is sure to gain.
"""

import numpy as np

from tileseer.dataset.dataset import Dataset
from tileseer.learn.trees import UNIT
from tileseer.measure.device import STATUSES

NONE = -1
"""No candidate."""
WRONG = STATUSES.index("wrong_result")
LOSS = 0.02
"""A pick that is slower than the library's own choice by more than this share loses."""
EFFICIENCY_OF_A_FAILED_PICK = 1e-3
"""Efficiency that a pick which did not run counts as."""
MOST_LOSERS = 0.04
"""Largest share of the held-out training problems that may lose, with the small models of cross-validation. The
published model is better: on unseen layers of an H200, 0.9 % lose."""
NEVER = 100.0
"""A lead that no score has."""
MARGINS = (*np.linspace(0.0, 5.0, 101).round(6).tolist(), NEVER)
"""Among these is the least lead with which a candidate replaces the library's own choice, in ``deviations``."""
GROUPINGS = ("dense", "depthwise", "grouped")
"""Kinds of problems, each with a margin of its own: without groups, a channel a group, several."""


def grouping(groups: np.ndarray, channels: np.ndarray) -> np.ndarray:
    """Place in ``GROUPINGS`` of problems with these groups and channels, int [P]."""
    return np.where(groups == 1, 0, np.where(groups == channels, 1, 2))


def library_choices(dataset: Dataset) -> np.ndarray | None:
    """Return the candidate that the library would run for each problem, int [P], or ``NONE``; None without an order.

    ``NONE`` also where that candidate was wrong: it has no time, and a selector leaves the problem to the library.
    """
    if np.isnan(dataset.rank).all():
        return None
    rows = np.flatnonzero((dataset.ok | (dataset.status == WRONG)) & ~np.isnan(dataset.rank))
    rows = rows[np.lexsort((dataset.rank[rows], dataset.problem[rows]))]
    first = rows[np.diff(dataset.problem[rows], prepend=-1) != 0]
    first = first[dataset.ok[first]]
    own = np.full(len(dataset.problems), NONE)
    own[dataset.problem[first]] = dataset.candidate[first]
    return own


def offered(dataset: Dataset) -> np.ndarray:
    """Return what the library offers for each problem and what was tried of it, bool [P, Q]."""
    offers = np.zeros((len(dataset.problems), len(dataset.candidates)), bool)
    offers[dataset.problem, dataset.candidate] = True
    return offers


def deviations(scores: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the finite scores of each problem, float64 [P]; ``scores`` [P, Q].

    A lead is compared with it: where the model tells the candidates apart less, a small lead means as much. Integers
    make it the same in every order and language.
    """
    finite = np.isfinite(scores)
    below = np.where(finite, scores.max(axis=1, keepdims=True, initial=-np.inf) - scores, 0.0)
    units = np.rint(below / UNIT).astype(np.int64)
    count = finite.sum(axis=1)
    squares = count * (units**2).sum(axis=1) - units.sum(axis=1) ** 2
    return np.asarray(np.sqrt(squares.astype(np.float64)) / np.maximum(count, 1) * UNIT)


def kept(scores: np.ndarray, own: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Return the scores [P, Q] in which the own choice stands first, unless another leads it by the problem's margin.

    An own choice that the model does not know, with a score of -inf, is kept: nothing says what would be gained.
    """
    scores = scores.copy()
    rows = np.flatnonzero(own != NONE)
    best, score = scores[rows].max(axis=1), scores[rows, own[rows]]
    keep = rows[~((best - score > margins[rows] * deviations(scores[rows])) & np.isfinite(score))]
    top = scores[keep].max(axis=1)
    scores[keep, own[keep]] = np.where(np.isfinite(top), top + 1.0, 0.0)
    return scores


def margins(dataset: Dataset, scores: np.ndarray, own: np.ndarray) -> list[float]:
    """Return the margin of each of ``GROUPINGS``: of those with few enough losing problems, the one that gains most.

    ``scores`` [P, Q] are of models that had not seen the problem; -inf where there is none. ``NEVER`` where nothing
    is gained, or nothing was measured.
    """
    # What never ran, or was wrong once, is in no model's pool.
    scores = np.where(dataset.proven, scores, -np.inf)
    rows = np.flatnonzero((own != NONE) & np.isfinite(scores).any(axis=1))
    achieved = dataset.grid(rows)
    scored, at = np.isfinite(scores[rows, own[rows]]), np.arange(len(rows))
    lead = np.where(scored, scores[rows].max(axis=1) - scores[rows, own[rows]], -np.inf)
    lead = np.divide(lead, deviations(scores[rows]), out=lead, where=lead > 0)
    gain = np.log(
        np.maximum(achieved[at, scores[rows].argmax(axis=1)], EFFICIENCY_OF_A_FAILED_PICK) / achieved[at, own[rows]]
    )
    problems = dataset.problems.iloc[rows]
    kind = grouping(problems["G"].to_numpy(), problems["C"].to_numpy())
    return [_margin(lead[kind == place], gain[kind == place]) for place in range(len(GROUPINGS))]


def _margin(lead: np.ndarray, gain: np.ndarray) -> float:
    """Return the margin of problems whose best candidate has this lead in deviations, and this gain of ln(time)."""
    best, most = NEVER, 0.0
    for margin in MARGINS if len(lead) else ():
        gained = np.where(lead > margin, gain, 0.0)
        if np.mean(gained < -np.log1p(LOSS)) <= MOST_LOSERS and gained.sum() > most:
            best, most = margin, float(gained.sum())
    return best
