"""What a dispatcher runs: all trees of the model, but not for every candidate.

Candidates that the model never puts near the best on a training problem (all but the ``finalists``) are scored only
where no finalist runs. At a *cut*, after a few trees, candidates leave that are too far below the best sum; the rest
goes through all trees, so the score of a pick is the model's own.

Trees of a boosted model matter less and less, so a few of them tell which candidates cannot win. What the others can
still change is seen on the training problems: the spread of what is missing from a sum, over the near-best candidates
of a problem. The margin of a cut is as many spreads as the allowed number of walks down a tree leaves room for.

The steps are those of ``serve.selector`` and of the published C++ header, with the same bits: leaf values are whole
multiples of ``UNIT``, so their sums are exact in every order; of equal scores the earlier candidate goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tileseer.costmodel.formula import Formula
from tileseer.costmodel.timing import PROBLEM_TERMS
from tileseer.kernels.registry import Family, of_kernels
from tileseer.kernels.rules import signature
from tileseer.kernels.support import SUPPORT
from tileseer.learn import trees
from tileseer.learn.features.features import Features, feature_set
from tileseer.learn.features.table import Columns
from tileseer.learn.model import Model
from tileseer.problems.operation import ELEMENT_BYTES, Operation
from tileseer.problems.problem import DIMS, Problem, problem_frame
from tileseer.serve.selector import first_of, ndims
from tileseer.serve.serving_files import Cut

TREES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Trees after which there is a cut."""
FINALIST = 0.01
"""A candidate within this of the best predicted ln(efficiency) of a training problem is a finalist."""
NEAR = 0.15
"""Distance below the best final score up to which candidates count for the spread."""
SPREADS = (2.0, 6.0)
"""The least and the largest margin: less would lose more than it saves, more would change no pick."""
BLOCK = 1 << 15
"""Pairs predicted at a time."""


@dataclass(frozen=True)
class Cascade:
    """A model of Q candidates with its finalists and cuts."""

    model: Model
    family: Family
    finalists: np.ndarray
    """bool [Q]"""
    cuts: tuple[Cut, ...]
    candidates: Columns
    """What the features read of the pool: ``Features.candidate_columns``."""
    kernel_classes: Columns
    classes: np.ndarray
    """The classes that the support rules tell apart, and the class of each candidate."""
    formula: Formula | None
    """What scores start from."""

    @classmethod
    def of(cls, model: Model, finalists: np.ndarray, cuts: tuple[Cut, ...]) -> Cascade:
        """Prepare a model for its pool."""
        family = of_kernels(model.pool["kernel"].tolist())
        kernel, classes = SUPPORT[family.name].kernel_classes(model.pool, model.hardware)
        columns = Features.of(model.spec.feature_set, model.hardware).candidate_columns(model.pool)
        formula = None
        if model.spec.formula is not None:
            any_problem = problem_frame([Problem.from_dims(model.spec.variant, model.spec.dtype)])
            formula = Formula(any_problem, model.pool, model.hardware, model.spec.formula)
        return cls(model, family, finalists, cuts, columns, kernel, classes, formula)

    @classmethod
    def calibrated(cls, model: Model, dims: np.ndarray, scores: np.ndarray, walks: float, threads: int) -> Cascade:
        """Choose finalists and cuts on training problems, of whose candidates ``walks`` trees are walked on the mean.

        ``dims`` [P, 19]; ``scores`` [P, Q] are the model's, -inf where a candidate cannot run.
        """
        chosen = finalists(scores)
        whole = cls.of(model, chosen, ())
        return replace(whole, cuts=cuts(whole, dims, entering(np.isfinite(scores), chosen), walks, threads))

    def of_rows(self, rows: np.ndarray) -> Cascade:
        """The same for some rows of the pool."""
        pool = self.model.pool.iloc[rows].reset_index(drop=True)
        return Cascade.of(replace(self.model, pool=pool), self.finalists[rows], self.cuts)

    def supported(self, dims: np.ndarray) -> np.ndarray:
        """Which candidates can run which problem, bool [n, Q]; ``dims``: int64 [n, 19], columns ``DIMS``."""
        problem = self.rule_columns(by_name(dims))
        return (SUPPORT[self.family.name].verdicts(problem, self.kernel_classes) == 0)[:, self.classes]

    def rule_columns(self, columns: Columns) -> dict[str, np.ndarray]:
        """Columns that the support rules read of problems, from their dimensions and ``ndim`` by name."""
        variant, dtype = self.model.spec.variant, self.model.spec.dtype
        problem = SUPPORT[self.family.name].read_of_problems(columns, variant, ELEMENT_BYTES[dtype])
        return problem | {"signature": signature(variant, dtype, columns["ndim"])}

    def problem_columns(self, columns: Columns) -> dict[str, np.ndarray]:
        """Columns that the features read of problems, from their dimensions and ``ndim`` by name."""
        spec = self.model.spec
        return feature_set(spec.feature_set).problem_columns(
            columns, Operation.parse(spec.operation), self.model.hardware
        )

    def features(self, dims: np.ndarray, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """The features of pairs (rows of ``dims`` and of the pool), [pairs, F]."""
        columns, spec = self.problem_columns(by_name(dims)), self.model.spec
        features = Features.of(spec.feature_set, self.model.hardware, spec.feature_names)
        return features.gather(columns, self.candidates, problem, candidate)

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
        booster = self.model.booster
        return np.asarray(
            booster.predict(matrix, start_iteration=first, num_iteration=end - first, num_threads=threads)
        )


def finalists(scores: np.ndarray) -> np.ndarray:
    """The candidates near the best of some problem, bool [Q]; ``scores`` [P, Q] are -inf where one cannot run."""
    best = scores.max(axis=1, keepdims=True)
    return np.asarray((np.isfinite(scores) & (scores >= best - FINALIST)).any(axis=0))


def entering(runs: np.ndarray, finalists: np.ndarray) -> np.ndarray:
    """Which candidates are scored, bool [n, Q]: finalists among ``runs``; all where there are none."""
    narrowed = runs & finalists
    return np.where(narrowed.any(axis=1)[:, None], narrowed, runs)


def cuts(cascade: Cascade, dims: np.ndarray, entered: np.ndarray, walks: float, threads: int) -> tuple[Cut, ...]:
    """The cuts of a cascade, of whose trees the candidates of a problem walk ``walks`` on the mean.

    ``dims`` [P, 19] are training problems, ``entered`` (bool [P, Q]) the candidates that are scored on them.
    """
    problem, candidate = np.nonzero(entered)
    ends = [*(count for count in TREES if count < cascade.model.booster.num_trees()), cascade.model.booster.num_trees()]
    sums = np.empty((len(ends), len(problem)))
    for start in range(0, len(problem), BLOCK):
        part = slice(start, start + BLOCK)
        matrix, done = cascade.features(dims, problem[part], candidate[part]), 0
        total = cascade.start(dims, problem[part], candidate[part])
        for number, end in enumerate(ends):
            total = sums[number, part] = total + cascade.trees(matrix, done, end, threads)
            done = end
    spreads = [_spread(problem, sums[-1], partial) for partial in sums[:-1]]
    low, high = SPREADS
    for _ in range(12):
        middle = (low + high) / 2
        enough = _walks(problem, sums, ends, [middle * spread for spread in spreads]) <= walks
        low, high = (middle, high) if enough else (low, middle)
    return tuple(
        Cut(trees=end, margin=trees.rounded(low * spread)) for end, spread in zip(ends[:-1], spreads, strict=True)
    )


def _spread(problem: np.ndarray, final: np.ndarray, partial: np.ndarray) -> float:
    """Root mean square of what is missing from ``partial``, less its mean in the problem, over near-best candidates."""
    near = final >= _best_of_problem(problem, final) - NEAR
    missing, number = (final - partial)[near], np.cumsum(first_of(problem[near])) - 1
    mean = np.bincount(number, missing) / np.bincount(number)
    return float(np.sqrt(np.mean((missing - mean[number]) ** 2)))


def _walks(problem: np.ndarray, sums: np.ndarray, ends: Sequence[int], margins: Sequence[float]) -> float:
    """Trees that the candidates of a problem walk together, on the mean."""
    problems = first_of(problem).sum()
    total, done = 0, 0
    for number, end in enumerate(ends):
        total += len(problem) * (end - done)
        if number < len(margins):
            stays = sums[number] >= _best_of_problem(problem, sums[number]) - margins[number]
            problem, sums = problem[stays], sums[:, stays]
        done = end
    return float(total / problems)


def by_name(dims: np.ndarray) -> dict[str, np.ndarray]:
    """Int64 columns of ``dims`` [n, 19], and ``ndim``."""
    columns = {name: dims[:, position] for position, name in enumerate(DIMS)}
    return columns | {"ndim": ndims(dims)}


def _best_of_problem(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The highest score of each pair's problem; ``problem`` is sorted."""
    starts = np.flatnonzero(first_of(problem))
    return np.repeat(np.maximum.reduceat(score, starts), np.diff(starts, append=len(problem)))
