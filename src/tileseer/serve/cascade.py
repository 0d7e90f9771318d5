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
from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.costmodel.formula import Formula
from tileseer.kernels.registry import Family, family_of_kernels
from tileseer.learn import trees
from tileseer.learn.model import BLOCK, Model
from tileseer.problems.problem import Problem, problem_frame
from tileseer.serve.selector import first_of
from tileseer.serve.serving_files import Cut

TREES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Trees after which there is a cut."""
FINALIST = 0.01
"""A candidate within this of the best predicted ln(efficiency) of a training problem is a finalist."""
NEAR = 0.15
"""Distance below the best final score up to which candidates count for the spread."""
SPREADS = (2.0, 6.0)
"""The least and the largest margin: less would lose more than it saves, more would change no pick."""


@dataclass(frozen=True)
class Cascade:
    """A model of Q candidates with its finalists and cuts."""

    model: Model
    finalists: np.ndarray
    """bool [Q]"""
    cuts: tuple[Cut, ...]

    @classmethod
    def calibrated(
        cls, model: Model, problems: pd.DataFrame, scores: np.ndarray, walks: float, threads: int
    ) -> Cascade:
        """Choose finalists and cuts on P training problems, of whose candidates ``walks`` trees are walked on the mean.

        ``scores`` [P, Q] are the model's, -inf where a candidate cannot run.
        """
        chosen = finalists(scores)
        return cls(model, chosen, cuts(model, problems, entering(np.isfinite(scores), chosen), walks, threads))

    @cached_property
    def family(self) -> Family:
        """The library of the kernels."""
        return family_of_kernels(self.model.pool["kernel"].tolist())

    def of_rows(self, rows: np.ndarray) -> Cascade:
        """The same for some rows of the pool."""
        pool = self.model.pool.iloc[rows].reset_index(drop=True)
        return Cascade(replace(self.model, pool=pool), self.finalists[rows], self.cuts)

    @cached_property
    def formula(self) -> Formula | None:
        """What scores start from."""
        spec = self.model.spec
        if spec.formula is None:
            return None
        any_problem = problem_frame([Problem.from_dims(spec.variant, spec.dtype)])
        return Formula(any_problem, self.model.pool, self.model.hardware, spec.formula)


def finalists(scores: np.ndarray) -> np.ndarray:
    """The candidates near the best of some problem, bool [Q]; ``scores`` [P, Q] are -inf where one cannot run."""
    best = scores.max(axis=1, keepdims=True)
    return np.asarray((np.isfinite(scores) & (scores >= best - FINALIST)).any(axis=0))


def entering(runs: np.ndarray, finalists: np.ndarray) -> np.ndarray:
    """Which candidates are scored, bool [n, Q]: finalists among ``runs``; all where there are none."""
    narrowed = runs & finalists
    return np.where(narrowed.any(axis=1)[:, None], narrowed, runs)


def cuts(model: Model, problems: pd.DataFrame, entered: np.ndarray, walks: float, threads: int) -> tuple[Cut, ...]:
    """The cuts of a model, of whose trees the candidates of a problem walk ``walks`` on the mean.

    ``problems`` are P training problems, ``entered`` (bool [P, Q]) the candidates that are scored on them.
    """
    problem, candidate = np.nonzero(entered)
    ends = [*(count for count in TREES if count < model.booster.num_trees()), model.booster.num_trees()]
    sums = np.empty((len(ends), len(problem)))
    columns = model.features.problem_columns(problems), model.features.candidate_columns(model.pool)
    prior = model.spec.formula
    formula = None if prior is None else Formula(problems, model.pool, model.hardware, prior)
    for start in range(0, len(problem), BLOCK):
        part = slice(start, start + BLOCK)
        pairs, done = (problem[part], candidate[part]), 0
        matrix = model.features.gather(*columns, *pairs)
        total = np.zeros(len(matrix)) if formula is None else formula.score(*pairs)
        for number, end in enumerate(ends):
            total = sums[number, part] = total + model.booster.predict(
                matrix, start_iteration=done, num_iteration=end - done, num_threads=threads
            )
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


def _best_of_problem(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The highest score of each pair's problem; ``problem`` is sorted."""
    starts = np.flatnonzero(first_of(problem))
    return np.repeat(np.maximum.reduceat(score, starts), np.diff(starts, append=len(problem)))
