"""What runs without a model: the library's own choice, or the first of a fixed order.

A library that chooses lists its candidates for a problem, in its own order. Nothing else is a candidate there, and its
own choice is the first of the list that runs. A model replaces it only where it is sure to gain.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core import exact
from tileseer.data.dataset import Dataset
from tileseer.measure.device import STATUSES
from tileseer.problems.kinds import MARGIN_KINDS, margin_kind

NONE = -1
"""No candidate."""
WRONG = STATUSES.index("wrong_result")
LOSS, MOST_LOSERS = 0.02, 0.01
"""How much slower than the own choice a pick loses, and the share of the picks of a kind that may lose."""
LARGE_LOSS, MOST_LARGE_LOSERS = 0.05, 0.001
"""The same of a pick that nobody should meet."""
LEAST_LAYERS = 100
"""Left-out problems of a kind of which something can be said: of fewer, every own choice is kept."""
EFFICIENCY_OF_A_FAILED_PICK = 1e-3
"""Efficiency that a pick which did not run counts as."""
NEVER = 100.0
"""A lead that no score has."""
MARGINS = (*np.linspace(0.0, 2.0, 201).round(6).tolist(), NEVER)
"""Among these is the least lead in score with which a candidate replaces the own choice."""


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


def in_fixed_order(dataset: Dataset, rows: np.ndarray, fold: np.ndarray, supported: np.ndarray) -> np.ndarray:
    """Return the first candidate of a fixed order that can run each of some problems, int [R], or ``NONE``.

    ``rows`` (int [R]) are the problems, ``supported`` (bool [P, Q]) is what can run. An order is chosen on the training
    problems of other folds (``fold``, int [P]).
    """
    first, ndim = np.full(len(rows), NONE), dataset.problems["ndim"].to_numpy()
    for one in np.unique(fold[rows]):
        orders = _fixed_orders(dataset, supported, fold != one)
        for place in np.flatnonzero(fold[rows] == one):
            order = orders.get(ndim[rows[place]], [])
            first[place] = next((row for row in order if supported[rows[place], row]), NONE)
    return first


def _fixed_orders(dataset: Dataset, supported: np.ndarray, used: np.ndarray) -> dict[int, list[int]]:
    """Return the candidate rows in order of preference, by ndim, chosen on training problems ``used`` (bool [P])."""
    training = np.flatnonzero(used & dataset.trains & (dataset.best_tflops > 0))
    achieved, able = dataset.grid(training), supported[training]
    dimensions = dataset.problems["ndim"].to_numpy()[training]
    orders: dict[int, list[int]] = {}
    for ndim in sorted(set(dimensions.tolist())):
        order = orders[ndim] = []
        left = dimensions == ndim
        while (total := np.where(able[left], achieved[left], 0.0).sum(axis=0)).any():
            order.append(int(total.argmax()))
            left = left & ~able[:, order[-1]]
    return orders


def chosen(
    problems: Mapping[str, Any] | pd.DataFrame,
    scores: np.ndarray,
    own: np.ndarray,
    gains: np.ndarray,
    margins: Sequence[float],
) -> np.ndarray:
    """Return the candidate to run on each of P problems, int [P], by its scores, float64 [P, Q].

    It is the own choice (``own``, int [P]), unless the best one leads it by the margin of the problem's kind
    (``MARGIN_KINDS``) and the model ``gains`` on such problems (``evidence.Expected``, bool [P]). An own choice that
    the model does not know, with a score of -inf, is kept: nothing says what would be gained.
    """
    rows, best = np.arange(len(own)), scores.argmax(axis=1)
    known = np.isfinite(scores[rows, own])
    lead = np.where(known, scores[rows, best], 0.0) - np.where(known, scores[rows, own], 0.0)
    sure = known & gains & (lead > np.asarray(margins)[margin_kind(problems)])
    return np.where(sure, best, own)


def margins(dataset: Dataset, scores: np.ndarray, own: np.ndarray, gains: np.ndarray) -> list[float]:
    """Return the margin of each of ``MARGIN_KINDS``: of those that do little harm, the one that gains most.

    ``scores`` [P, Q] are of models that had not seen the problem; -inf where there is none. Problems on which the model
    is not known to gain (``gains``, bool [P]) keep the own choice. ``NEVER`` where nothing is gained, or too few
    problems of the kind were measured.
    """
    # What never ran, or was wrong once, is in no model's pool.
    scores = np.where(dataset.proven, scores, -np.inf)
    rows = np.flatnonzero((own != NONE) & np.isfinite(scores).any(axis=1))
    achieved = dataset.grid(rows)
    scored, at = np.isfinite(scores[rows, own[rows]]), np.arange(len(rows))
    lead = np.where(scored & gains[rows], scores[rows].max(axis=1) - scores[rows, own[rows]], -np.inf)
    gain = exact.log(
        np.maximum(achieved[at, scores[rows].argmax(axis=1)], EFFICIENCY_OF_A_FAILED_PICK) / achieved[at, own[rows]]
    )
    kind = margin_kind(dataset.problems.iloc[rows])
    return [_margin(lead[kind == place], gain[kind == place]) for place in range(len(MARGIN_KINDS))]


def _margin(lead: np.ndarray, gain: np.ndarray) -> float:
    """Return the margin of problems whose best candidate has this lead, and this gain of ln(time)."""
    best, most = NEVER, 0.0
    for margin in MARGINS if len(lead) >= LEAST_LAYERS else ():
        gained = np.where(lead > margin, gain, 0.0)
        harmless = all(
            np.mean(gained < -exact.log(1 + loss)) <= share
            for loss, share in ((LOSS, MOST_LOSERS), (LARGE_LOSS, MOST_LARGE_LOSERS))
        )
        if harmless and gained.sum() > most:
            best, most = margin, float(gained.sum())
    return best
