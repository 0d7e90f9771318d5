"""How a problem stands to what was measured, and what a pick is expected to lose there.

Evidence are the measured problems on which at least two candidates ran: one candidate alone says nothing of a choice. A
problem is as far away as the third nearest of its grouping, dimensionality and layout, in octaves: the Euclidean
distance of the logarithms of its sizes, that of its largest tensor among them. Two distances bound what is near, 90 %
of the layers that were left out of training, and what is not far, 99 %.

A small distance promises nothing where picks are bad. So the layers that were left out also say what picks lose, for
each kind of layer (``kinds.LEAVES``) and distance: a kind with few of them takes what it lacks from the kind that it is
a part of. A problem is *inside* where it is near, picks of its kind lose little, and enough layers of it were left out
to know; it is *outside* where it is far, picks lose much, or next to nothing is known.

Distances and kinds are whole numbers, and expected losses are tables, so that Python and C++
(``workflow/templates/serving/selector.hpp.j2``) agree to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np

from tileseer.core import exact
from tileseer.core.documents import Document
from tileseer.data.dataset import Dataset
from tileseer.learn.rows import LAYER_FOLDS, deal
from tileseer.problems.kinds import LEAVES, ancestry, evidence_kind, leaf_kind
from tileseer.problems.problem import columns_of_frame
from tileseer.problems.shapes import tensor_elements

EvidenceClass = Literal["inside", "edge", "outside"]
EVIDENCE_CLASSES: tuple[EvidenceClass, ...] = get_args(EvidenceClass)
INSIDE, EDGE, OUTSIDE = range(len(EVIDENCE_CLASSES))
LEAST_COMPARED = 2
"""Candidates that ran on a problem which says something of a choice."""
NEAR_PROBLEMS = 3
"""Measured problems that are to be near: one alone may be odd."""
SHARES_WITHIN = (0.90, 0.99)
"""Of the layers that were left out, those that are near, and those that are not far."""
STEPS_OF_AN_OCTAVE = 64
FIRST_OF_STEP = exact.exp2((np.arange(STEPS_OF_AN_OCTAVE) + 0.5) / STEPS_OF_AN_OCTAVE - 1)
"""Mantissas, in 1/2..1, from which on log2 is rounded to the next step."""
FAR = np.iinfo(np.int64).max
"""Square of the distance where too few problems of the kind were measured."""
ENOUGH_LEFT_OUT = 2500
"""Problems that were left out, after which no further fold calibrates."""
_PROBLEMS_AT_A_TIME = 256

LOSSES = (1.05, 1.25)
"""Expected times of the pick over that of the fastest, up to which a problem may be inside, or at the edge."""
KNOWN_LEVELS = 2
"""Words of the kind (grouping, dimensionality and layout; filter) of which layers have to be known."""
CASES = (30, 10)
"""Measured layers of such a kind, from which on a problem may be inside, or at the edge."""
COMMON = 0.1
"""A kind with this share of the measured layers is not rare: fewer are enough, so many as at the edge."""
CASES_OF_THE_PARENT = 10
"""What a kind takes from the one that it is a part of weighs like so many layers."""
LEFT = 1.005
"""Expected time of the fastest of a short list over that of all, with which the list is long enough."""
EVERY = 1 << 10
"""More candidates than a library offers."""
MOST_LOSS = 10.0
"""Time of a pick over that of the fastest that a single layer counts as, at most: also of one that did not run."""
HALF = 2.0
"""A pick that takes so many times as long has less than half of the speed."""
TIMED = (1, 2, 3, 4, 6, 8, 10, 16, 24)
"""Lengths of short lists of which it is known what timing them leaves."""
Columns = Any
"""Whole numbers by ``ndim``, dimension and ``layout``: arrays (``columns_of_frame``), or symbols of C++."""


class KindLosses(Document):
    """What is lost on the layers of a kind that were left out, at each distance: time over that of the fastest.

    Lists are in the order of ``EVIDENCE_CLASSES``: near, not far, far.
    """

    kind: str
    """The first words of ``kinds.LEAVES``; "" is all layers."""
    cases: int
    """Layers that were measured, at any size of image and batch."""
    loss: list[float]
    """Of the picks, mean."""
    own_loss: list[float]
    """Of what runs without the model: the library's own choice, or else the first of a fixed order."""
    below_half: list[float]
    """Share of the picks with less than half of the speed of the fastest, 0..1."""
    timed: list[list[float]]
    """Mean loss of the fastest of short lists with so many candidates of the model (``TIMED``), each timed once."""


class LearntEvidence(Document):
    """What layers that were left out of training say of layers that nobody measured."""

    inside: float
    """Octaves up to which a problem is near."""
    edge: float
    """Octaves up to which it is not far."""
    kinds: list[KindLosses]
    """Kinds of which layers were measured, all layers first."""

    @property
    def squares(self) -> tuple[int, int]:
        """The squares of both distances, in steps of which an octave has ``STEPS_OF_AN_OCTAVE``."""
        inside, edge = (round(octaves * STEPS_OF_AN_OCTAVE) ** 2 for octaves in (self.inside, self.edge))
        return inside, edge


NOTHING_LEARNT = LearntEvidence(inside=0.0, edge=0.0, kinds=[])
"""Nothing was left out: only measured problems are inside."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What is known of n problems, or of the kinds of ``LEAVES`` at each distance."""

    classes: np.ndarray
    """Place in ``EVIDENCE_CLASSES``, int64 [n]."""
    gains: np.ndarray
    """Whether a pick is expected to be faster than what runs without the model, bool [n]: the problem is near, and
    enough layers of its kind say so."""
    loss: np.ndarray
    """Expected time of the pick over that of the fastest, float64 [n]; NaN where nothing was left out."""
    own_loss: np.ndarray
    """The same of what runs without the model, float64 [n]."""
    below_half: np.ndarray
    """Expected share of picks with less than half of the speed, float64 [n]."""
    timed: np.ndarray
    """Expected loss of the fastest of short lists (``TIMED``), float64 [n, lengths]."""
    cases: np.ndarray
    """Measured layers of ``kind``, int64 [n]."""
    kind: np.ndarray
    """The kind whose layers say so, text [n]."""

    def at(self, columns: Columns, learnt: LearntEvidence, squares: np.ndarray) -> Expected:
        """Return of a table of all kinds what is known of n problems.

        ``squares`` (int64 [n]) are those of their distances in steps.
        """
        at = leaf_kind(columns), np.searchsorted(learnt.squares, squares, side="left")
        found = {name: values[at] for name, values in vars(self).items()}
        # What was measured needs no likeness.
        return Expected(**found | {"classes": np.where(squares == 0, INSIDE, found["classes"])})


@dataclass(frozen=True, eq=False)
class Evidence:
    """m measured problems, and what is known of problems by their distance from them and by their kind."""

    rows: np.ndarray
    """Of the table that they are from, int64 [m]."""
    kinds: np.ndarray
    """int64 [m]."""
    places: np.ndarray
    """Logarithms of the sizes in steps, int64 [m, axes]."""
    learnt: LearntEvidence

    @classmethod
    def from_problems(cls, columns: Columns, compared: np.ndarray, learnt: LearntEvidence) -> Self:
        """Return the evidence of measured problems, on which ``compared`` candidates ran (int [P])."""
        rows = np.flatnonzero(compared >= LEAST_COMPARED)
        return cls(rows, evidence_kind(columns)[rows], places_of(columns)[rows], learnt)

    def of(self, columns: Columns) -> Expected:
        """Return what is known of n problems."""
        return self.by_kind.at(columns, self.learnt, self.squared_distances(columns))

    @cached_property
    def by_kind(self) -> Expected:
        """What is known of each kind at each distance, [leaves, distances]."""
        return known_by_kind(self.learnt)

    def nearest(self, columns: Columns, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the measured problems of the same kind that are nearest to each of n, the nearest first.

        Their rows, int64 [n, count], and the squares of their distances in steps: -1 and ``FAR`` where there are fewer.
        Of equal distances the earlier row goes first.
        """
        kinds, places = evidence_kind(columns), places_of(columns)
        found, away = np.full((len(kinds), count), -1), np.full((len(kinds), count), FAR)
        for kind in np.unique(kinds):
            measured, rows = np.flatnonzero(self.kinds == kind), np.flatnonzero(kinds == kind)
            for part in np.split(rows, range(_PROBLEMS_AT_A_TIME, len(rows), _PROBLEMS_AT_A_TIME)):
                squares = _squared_distances(places[part], self.places[measured])
                # Squares and places in one whole number: no two are equal.
                keys = squares * len(measured) + np.arange(len(measured))
                number = min(count, len(measured))
                if number < len(measured):
                    keys = np.partition(keys, number - 1, axis=1)[:, :number]
                keys = np.sort(keys, axis=1).astype(np.int64)
                found[part, :number] = self.rows[measured[keys % max(len(measured), 1)]]
                away[part, :number] = keys // max(len(measured), 1)
        return found, away

    def squared_distances(self, columns: Columns) -> np.ndarray:
        """Return the square of the distance of n problems in steps, int64 [n]; 0 with the sizes of a measured one."""
        _, away = self.nearest(columns, NEAR_PROBLEMS)
        return np.where(away[:, 0] == 0, 0, away[:, -1])


def worth_timing(expected: Expected) -> np.ndarray:
    """Return how many candidates of the model are worth timing on each of n problems, int64 [n].

    The fewest that leave at most ``LEFT``; ``EVERY`` where no list does, or nothing is known.
    """
    enough = np.column_stack([expected.timed <= LEFT, np.ones(len(expected.timed), bool)])
    return np.array([*TIMED, EVERY])[enough.argmax(axis=1)]


def known_by_kind(learnt: LearntEvidence) -> Expected:
    """Return what is known of each of ``LEAVES`` at each distance, [leaves, distances]."""
    found = {one.kind: one for one in learnt.kinds}
    main = ["/".join(leaf.split("/")[:KNOWN_LEVELS]) for leaf in LEAVES]
    known = np.array([found[kind].cases if kind in found else 0 for kind in main])
    own = [next((found[kind] for kind in ancestry(leaf) if kind in found), None) for leaf in LEAVES]

    def at_each_distance(name: str, *shape: int) -> np.ndarray:
        unknown = np.full((len(EVIDENCE_CLASSES), *shape), np.nan)
        return np.array([unknown if one is None else getattr(one, name) for one in own])

    loss, own_loss = at_each_distance("loss"), at_each_distance("own_loss")
    common = COMMON * found[""].cases if found else np.inf
    by_cases = np.sum([known < CASES[0], known < CASES[1]], axis=0)
    by_cases[(known >= CASES[1]) & (known >= common)] = INSIDE
    by_loss = np.sum([~(loss <= most) for most in LOSSES], axis=0)
    by_distance = np.arange(len(EVIDENCE_CLASSES))
    return Expected(
        classes=np.maximum(np.maximum(by_cases[:, None], by_distance), by_loss),
        gains=(by_cases[:, None] < OUTSIDE) & (by_distance == INSIDE) & (loss < own_loss),
        loss=loss,
        own_loss=own_loss,
        below_half=at_each_distance("below_half"),
        timed=at_each_distance("timed", len(TIMED)),
        cases=np.array([[one.cases if one else 0] * len(by_distance) for one in own]),
        kind=np.array([[one.kind if one else ""] * len(by_distance) for one in own]),
    )


def _squared_distances(places: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the squares of the distances of [n, axes] from [m, axes], float64 [n, m]: sums of whole numbers, exact."""
    own, far = places.astype(np.float64), others.astype(np.float64)
    return np.asarray((own**2).sum(axis=1)[:, None] + (far**2).sum(axis=1) - 2 * own @ far.T)


def sizes_of(columns: Columns) -> list[Any]:
    """Return the sizes by which problems of one kind are compared, positive whole numbers; elements, the last one."""
    c = columns
    inputs, filters, outputs = tensor_elements(c)
    steps = [c[f"{name}_{axis}"] for name in ("stride", "dilation") for axis in "dhw"]
    images = [c[name] for name in ("Di", "Hi", "Wi", "Z", "Y", "X")]
    largest = np.maximum(np.maximum(inputs, outputs), filters)
    return [c["N"], c["C"] // c["G"], c["K"] // c["G"], c["G"], *images, *steps, largest]


def places_of(columns: Columns) -> np.ndarray:
    """Return log2 of the sizes of each problem in steps, rounded, int64 [P, axes]: by comparisons, as in C++."""
    mantissa, exponent = np.frexp(np.stack(sizes_of(columns), axis=1).astype(np.float64))
    steps = np.searchsorted(FIRST_OF_STEP, mantissa, side="right")
    return (exponent.astype(np.int64) - 1) * STEPS_OF_AN_OCTAVE + steps


def compared_candidates(dataset: Dataset) -> np.ndarray:
    """Return how many candidates ran on each problem, int64 [P]."""
    return np.bincount(dataset.problem[dataset.ok], minlength=len(dataset.problems))


def calibrated_distances(dataset: Dataset) -> LearntEvidence:
    """Return the distances of training layers that are left out, at any batch size; zeros where there are too few."""
    rows = np.flatnonzero(dataset.trains & (compared_candidates(dataset) >= LEAST_COMPARED))
    layer = dataset.problems["layer_family"].to_numpy()
    folds = min(LAYER_FOLDS, len(np.unique(layer[rows])))
    if folds < 2:
        return NOTHING_LEARNT
    fold = deal(layer, rows, folds, seed=0)
    enough = np.searchsorted(np.bincount(fold[rows]).cumsum(), ENOUGH_LEFT_OUT)
    squares = held_out_distances(dataset, rows[fold[rows] <= enough], fold)
    squares = squares[squares < FAR]
    if not len(squares):
        return NOTHING_LEARNT
    steps = np.ceil(np.sqrt(np.quantile(squares, SHARES_WITHIN, method="higher")))
    inside, edge = (steps / STEPS_OF_AN_OCTAVE).tolist()
    return LearntEvidence(inside=inside, edge=edge, kinds=[])


@dataclass(frozen=True, eq=False)
class Judged:
    """R left-out problems, and what is lost on them: time over that of the fastest candidate."""

    rows: np.ndarray
    """Of ``dataset.problems``, int64 [R]."""
    picked: np.ndarray
    """Efficiency of the pick, float64 [R]."""
    own: np.ndarray
    """The same of what runs without the model, float64 [R]."""
    timed: np.ndarray
    """Of the fastest of each of ``TIMED`` short lists, float64 [R, lengths]."""


def with_losses(
    learnt: LearntEvidence, dataset: Dataset, layers: np.ndarray, fold: np.ndarray, judged: Judged
) -> LearntEvidence:
    """Return evidence with the losses of left-out problems.

    ``layers`` (text [P]) is the layer of each problem, ``fold`` (int [P]) where it is left out. A layer counts once,
    whatever the number of its sizes. The loss at a larger distance is no smaller: luck on few layers is no promise.
    """
    if not len(judged.rows):
        return learnt
    measured = np.flatnonzero(dataset.trains & (compared_candidates(dataset) >= LEAST_COMPARED))
    cases = {kind: len(np.unique(layers[rows])) for kind, rows in _rows_of_kinds(dataset, measured).items()}
    distance = np.searchsorted(learnt.squares, held_out_distances(dataset, judged.rows, fold), side="left")
    loss = 1 / np.maximum(np.column_stack([judged.picked, judged.own, judged.timed]), 1 / MOST_LOSS)
    values = np.column_stack([loss, loss[:, 0] > HALF, np.ones(len(loss))])
    _, layer, sizes = np.unique(layers[judged.rows], return_inverse=True, return_counts=True)
    values *= (1 / sizes[layer])[:, None]
    left_out, place = _rows_of_kinds(dataset, judged.rows), np.full(len(layers), -1)
    place[judged.rows] = np.arange(len(judged.rows))
    overall = np.tile(_mean(_sums(values)), (len(EVIDENCE_CLASSES), 1))
    means: dict[str, np.ndarray] = {}
    found = []
    for kind in sorted(cases, key=lambda name: (len(name.split("/")) * bool(name), name)):
        above = means[kind.rpartition("/")[0]] if kind else overall
        rows = place[left_out.get(kind, measured[:0])]
        own = np.array([_sums(values[rows[distance[rows] == at]]) for at in range(len(EVIDENCE_CLASSES))])
        drawn = own + CASES_OF_THE_PARENT * np.column_stack([above, np.ones(len(above))])
        means[kind] = np.maximum.accumulate([_mean(sums) for sums in drawn], axis=0)
        picked, own_loss, *timed, below_half = means[kind].round(6).T.tolist()
        lists = np.transpose(timed).tolist()
        found.append(
            KindLosses(kind=kind, cases=cases[kind], loss=picked, own_loss=own_loss, below_half=below_half, timed=lists)
        )
    return learnt.model_copy(update={"kinds": found})


def _rows_of_kinds(dataset: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return which of ``rows`` (int [R]) are of each kind, the kinds that it is a part of included."""
    leaves = leaf_kind(_columns(dataset, rows))
    found: dict[str, list[np.ndarray]] = {}
    for leaf in np.unique(leaves).tolist():
        for kind in ancestry(LEAVES[leaf]):
            found.setdefault(kind, []).append(rows[leaves == leaf])
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def _sums(values: np.ndarray) -> np.ndarray:
    """Return the sums of [R, n], one row after the other: in one order on every processor."""
    return np.array([np.bincount(np.zeros(len(values), np.int64), column, minlength=1)[0] for column in values.T])


def _mean(sums: np.ndarray) -> np.ndarray:
    """Return sums over the last one, the number of cases."""
    return sums[:-1] / max(sums[-1], 1e-9)


def held_out(dataset: Dataset, rows: np.ndarray, fold: np.ndarray, learnt: LearntEvidence) -> Expected:
    """Return what is known of held-out problems by the training problems elsewhere.

    ``rows`` (int [R]) are their rows, ``fold`` (int [P]) is where each problem of the dataset is held out.
    """
    return known_by_kind(learnt).at(_columns(dataset, rows), learnt, held_out_distances(dataset, rows, fold))


def held_out_distances(dataset: Dataset, rows: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return the squares of the distances in steps of the same, int64 [R]."""
    squares = np.empty(len(rows), np.int64)
    for one in np.unique(fold[rows]):
        own, others = fold[rows] == one, np.flatnonzero(dataset.trains & (fold != one))
        evidence = Evidence.from_problems(
            _columns(dataset, others), compared_candidates(dataset)[others], NOTHING_LEARNT
        )
        squares[own] = evidence.squared_distances(_columns(dataset, rows[own]))
    return squares


def _columns(dataset: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    return columns_of_frame(dataset.problems.iloc[rows])
