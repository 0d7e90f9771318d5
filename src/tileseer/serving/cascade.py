"""What a dispatcher runs: all trees of the model, but not for every candidate.

Candidates that the model never puts near the best on a training problem (all but the ``finalists``) are asked only
where none of those can run. After a few trees, candidates that stand too far below the best sum leave, and so on in
stages (``serving.stages``); the rest goes through all trees, so the score of a pick is the model's own.

The steps are those of ``serving.picker`` and of the published C++ header, with the same bits: leaf values are whole
multiples of ``trees.UNIT``, so their sums are exact in every order; of equal scores the earlier candidate goes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tileseer.conv.operation import ELEMENT_BYTES, Operation
from tileseer.conv.problem import DIMS, Problem, frame
from tileseer.devices.timing import PROBLEM_TERMS
from tileseer.families.family import Family
from tileseer.families.feature_table import Columns
from tileseer.families.registry import of_kernels
from tileseer.families.support_rules import classes_verdicts, signature
from tileseer.model import features
from tileseer.model.formula import Formula
from tileseer.model.model import Model
from tileseer.serving.picker import first_of, ndims
from tileseer.serving.schema import Stage


@dataclass(frozen=True)
class Cascade:
    """A model of Q candidates with the order in which they are asked."""

    model: Model
    family: Family
    finalists: np.ndarray
    """bool [Q]"""
    stages: tuple[Stage, ...]
    candidates: Columns
    """What the features read of the pool: ``features.candidate_columns``."""
    kernel_classes: Columns
    classes: np.ndarray
    """The classes that the support rules tell apart, and the class of each candidate."""
    formula: Formula | None
    """What scores start from."""

    @classmethod
    def of(cls, model: Model, finalists: np.ndarray, stages: tuple[Stage, ...]) -> Cascade:
        """Prepare a model for its pool."""
        family = of_kernels(model.pool["kernel"].tolist())
        kernel, classes = family.part("support").kernel_classes(model.pool, model.hardware.wave_size)
        columns = features.candidate_columns(model.pool, model.hardware, model.spec.feature_set)
        formula = None
        if model.spec.formula is not None:
            any_problem = frame([Problem.from_dims(model.spec.variant, model.spec.dtype)])
            formula = Formula(any_problem, model.pool, model.hardware, model.spec.formula)
        return cls(model, family, finalists, stages, columns, kernel, classes, formula)

    def of_rows(self, rows: np.ndarray) -> Cascade:
        """The same for some rows of the pool."""
        pool = self.model.pool.iloc[rows].reset_index(drop=True)
        return Cascade.of(replace(self.model, pool=pool), self.finalists[rows], self.stages)

    def supported(self, dims: np.ndarray) -> np.ndarray:
        """Which candidates can run which problem, bool [n, Q]; ``dims``: int64 [n, 19], columns ``DIMS``."""
        problem = self.rule_columns(by_name(dims))
        return (classes_verdicts(problem, self.kernel_classes, self.family.part("support").RULES) == 0)[:, self.classes]

    def rule_columns(self, columns: Columns) -> dict[str, np.ndarray]:
        """Columns that the support rules read of problems, from their dimensions and ``ndim`` by name."""
        variant, dtype = self.model.spec.variant, self.model.spec.dtype
        problem = self.family.part("support").problem_columns(columns, variant, ELEMENT_BYTES[dtype])
        return problem | {"signature": signature(variant, dtype, columns["ndim"])}

    def problem_columns(self, columns: Columns) -> dict[str, np.ndarray]:
        """Columns that the features read of problems, from their dimensions and ``ndim`` by name."""
        chosen = features.feature_set(self.model.spec.feature_set)
        return chosen.problem_columns(columns, Operation.parse(self.model.spec.operation), self.model.hardware)

    def features(self, dims: np.ndarray, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """The features of pairs (rows of ``dims`` and of the pool), [pairs, F]."""
        columns, spec = self.problem_columns(by_name(dims)), self.model.spec
        return features.matrix(
            columns, self.candidates, problem, candidate, self.model.hardware, spec.feature_set, spec.feature_names
        )

    def start(self, dims: np.ndarray, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """What the trees of pairs are added to, float64."""
        if self.formula is None:
            return np.zeros(len(problem))
        columns = self.problem_columns(by_name(dims))
        of_problem = {name: columns[name].astype(np.float32)[problem] for name in PROBLEM_TERMS}
        return self.formula.score_of(of_problem, {name: v[candidate] for name, v in self.formula.kernel.items()})

    def trees(self, matrix: np.ndarray, first: int, end: int, threads: int = 1) -> np.ndarray:
        """The sum of the trees from ``first`` to before ``end`` for each row of features, float64."""
        if end <= first:
            return np.zeros(len(matrix))
        return np.asarray(
            self.model.booster.predict(
                matrix, start_iteration=first, num_iteration=end - first, num_threads=threads
            )
        )  # fmt: skip


def asked(runs: np.ndarray, finalists: np.ndarray) -> np.ndarray:
    """Which candidates are asked of problems, bool [n, Q]: finalists among ``runs``; all where there are none."""
    narrowed = runs & finalists
    return np.where(narrowed.any(axis=1)[:, None], narrowed, runs)


def by_name(dims: np.ndarray) -> dict[str, np.ndarray]:
    """Int64 columns of ``dims`` [n, 19], and ``ndim``."""
    columns = {name: dims[:, position] for position, name in enumerate(DIMS)}
    return columns | {"ndim": ndims(dims)}


def best_of(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The highest score of each pair's problem; ``problem`` is sorted."""
    starts = np.flatnonzero(first_of(problem))
    return np.repeat(np.maximum.reduceat(score, starts), np.diff(starts, append=len(problem)))
