"""How a problem stands to what was measured: inside, at the edge or outside of it.

Evidence are the measured problems on which at least two candidates ran: one candidate alone says nothing of a choice. A
problem is as far away as the third nearest of its kind (dimensionality, layout, and dense, grouped or depthwise), in
octaves: the Euclidean distance of the logarithms of its sizes, that of its largest tensor among them. Two distances
bound the classes. Layers that were left out calibrate them: 90 % of those are inside, 99 % inside or at the edge.

Distances are whole numbers, so that Python and C++ (``workflow/templates/serving/selector.hpp.j2``) agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from tileseer.core import exact
from tileseer.core.documents import Document
from tileseer.data.dataset import Dataset
from tileseer.learn.rows import LAYER_FOLDS, deal
from tileseer.problems.kinds import evidence_kind
from tileseer.problems.problem import columns_of_frame
from tileseer.problems.shapes import tensor_elements

EvidenceClass = Literal["inside", "edge", "outside"]
EVIDENCE_CLASSES: tuple[EvidenceClass, ...] = get_args(EvidenceClass)
INSIDE = EVIDENCE_CLASSES.index("inside")
LEAST_COMPARED = 2
"""Candidates that ran on a problem which says something of a choice."""
NEAR_PROBLEMS = 3
"""Measured problems that are to be near: one alone may be odd."""
SHARES_WITHIN = (0.90, 0.99)
"""Of the layers that were left out, inside, and inside or at the edge."""
STEPS_OF_AN_OCTAVE = 64
FAR = np.iinfo(np.int64).max
"""Square of the distance where too few problems of the kind were measured."""
ENOUGH_LEFT_OUT = 2500
"""Problems that were left out, after which no further fold calibrates."""
_PROBLEMS_AT_A_TIME = 256
Columns = Any
"""Whole numbers by ``ndim``, dimension and ``layout``: arrays (``columns_of_frame``), or symbols of C++."""


class EvidenceBounds(Document):
    """Distances, in octaves, up to which a problem is inside or at the edge of what was measured."""

    inside: float
    edge: float

    @property
    def squares(self) -> tuple[int, int]:
        """The squares of both, in steps of which an octave has ``STEPS_OF_AN_OCTAVE``."""
        inside, edge = (round(octaves * STEPS_OF_AN_OCTAVE) ** 2 for octaves in (self.inside, self.edge))
        return inside, edge


NOWHERE = EvidenceBounds(inside=0.0, edge=0.0)
"""Bounds that only a measured problem keeps."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """m measured problems, and how far from them others may be."""

    rows: np.ndarray
    """Of the table that they are from, int64 [m]."""
    kinds: np.ndarray
    """int64 [m]."""
    places: np.ndarray
    """Logarithms of the sizes in steps, int64 [m, axes]."""
    bounds: EvidenceBounds

    @classmethod
    def of(cls, columns: Columns, compared: np.ndarray, bounds: EvidenceBounds) -> Self:
        """Return the evidence of problems, on which ``compared`` candidates ran (int [P])."""
        rows = np.flatnonzero(compared >= LEAST_COMPARED)
        return cls(rows, evidence_kind(columns)[rows], places_of(columns)[rows], bounds)

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

    def classes(self, columns: Columns) -> np.ndarray:
        """Return the place in ``EVIDENCE_CLASSES`` of n problems, int64 [n]."""
        return np.searchsorted(self.bounds.squares, self.squared_distances(columns), side="left")

    def squared_distances(self, columns: Columns) -> np.ndarray:
        """Return the square of the distance of n problems in steps, int64 [n]; 0 with the sizes of a measured one."""
        _, away = self.nearest(columns, NEAR_PROBLEMS)
        return np.where(away[:, 0] == 0, 0, away[:, -1])


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
    """Return log2 of the sizes of each problem in steps, int64 [P, axes]."""
    logs = exact.log2(np.stack(sizes_of(columns), axis=1).astype(np.float64))
    return np.rint(logs * STEPS_OF_AN_OCTAVE).astype(np.int64)


def compared_candidates(dataset: Dataset) -> np.ndarray:
    """Return how many candidates ran on each problem, int64 [P]."""
    return np.bincount(dataset.problem[dataset.ok], minlength=len(dataset.problems))


def calibrated_bounds(dataset: Dataset) -> EvidenceBounds:
    """Return the bounds by training layers that are left out, at any batch size; zeros where there are too few."""
    rows = np.flatnonzero(dataset.trains & (compared_candidates(dataset) >= LEAST_COMPARED))
    layer = dataset.problems["layer_family"].to_numpy()
    folds = min(LAYER_FOLDS, len(np.unique(layer[rows])))
    fold = deal(layer, rows, folds, seed=0)
    squares = np.zeros(0, np.int64)
    for one in range(folds if folds > 1 else 0):
        if len(squares) < ENOUGH_LEFT_OUT:
            own = np.flatnonzero(fold == one)
            squares = np.append(squares, _of_other_folds(dataset, fold, one).squared_distances(_columns(dataset, own)))
    squares = squares[squares < FAR]
    if not len(squares):
        return NOWHERE
    steps = np.ceil(np.sqrt(np.quantile(squares, SHARES_WITHIN, method="higher")))
    inside, edge = (steps / STEPS_OF_AN_OCTAVE).tolist()
    return EvidenceBounds(inside=inside, edge=edge)


def held_out_classes(dataset: Dataset, rows: np.ndarray, fold: np.ndarray, bounds: EvidenceBounds) -> np.ndarray:
    """Return the place in ``EVIDENCE_CLASSES`` of held-out problems, int64 [R], by the training problems elsewhere.

    ``rows`` (int [R]) are their rows, ``fold`` (int [P]) is where each problem of the dataset is held out.
    """
    found = np.empty(len(rows), np.int64)
    for one in np.unique(fold[rows]):
        own = fold[rows] == one
        found[own] = _of_other_folds(dataset, fold, one, bounds).classes(_columns(dataset, rows[own]))
    return found


def _of_other_folds(dataset: Dataset, fold: np.ndarray, one: int, bounds: EvidenceBounds = NOWHERE) -> Evidence:
    """Return the evidence of the training problems that are not in one fold."""
    others = np.flatnonzero(dataset.trains & (fold != one))
    return Evidence.of(_columns(dataset, others), compared_candidates(dataset)[others], bounds)


def _columns(dataset: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    return columns_of_frame(dataset.problems.iloc[rows])
