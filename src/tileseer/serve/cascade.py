"""What a dispatcher runs: all trees of the model, but not for every candidate.

At a *cut*, after a few trees, candidates leave that are too far below the best sum; the rest goes through all trees, so
the score of a pick is the model's own.

Trees of a boosted model matter less and less, so a few of them tell which candidates cannot win. What the others can
still change is seen on the training problems: the spread of what is missing from a sum, over the near-best candidates
of a problem. The margin of a cut is ``SPREADS`` of them.

The steps are those of ``serve.selector`` and of the published C++ header, with the same bits: leaf values are whole
multiples of ``UNIT``, so their sums are exact in every order; of equal scores the earlier candidate goes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from tileseer.kernels.registry import Family, family_of_kernels
from tileseer.learn import trees
from tileseer.learn.formula import Formula
from tileseer.learn.model import BLOCK, Model
from tileseer.problems.problem import Problem, problem_frame
from tileseer.serve.selector import first_of
from tileseer.serve.serving_files import Cut

TREES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Trees after which there is a cut."""
NEAR = 0.15
"""Distance below the best final score up to which candidates count for the spread."""
SPREADS = 10
"""Margin of a cut in spreads. On the unseen layers of a simulated gfx950 6 lose 0.03 to 0.11 points of the mean, 10 at
most 0.02, for 1.3 to 1.5 times the walks; 16 change nothing."""


@dataclass(frozen=True)
class Cascade:
    """A model of Q candidates with its cuts."""

    model: Model
    cuts: tuple[Cut, ...]

    @classmethod
    def calibrated(cls, model: Model, problems: pd.DataFrame, scores: np.ndarray, threads: int) -> Cascade:
        """Choose the cuts on P training problems; ``scores`` [P, Q] are the model's, -inf where one cannot run."""
        return cls(model, cuts(model, problems, scores, threads))

    @cached_property
    def family(self) -> Family:
        """The library of the kernels."""
        return family_of_kernels(self.model.pool["kernel"].tolist())

    def of_rows(self, rows: np.ndarray) -> Cascade:
        """The same for some rows of the pool."""
        pool = self.model.pool.iloc[rows].reset_index(drop=True)
        return Cascade(replace(self.model, pool=pool), self.cuts)

    @cached_property
    def formula(self) -> Formula | None:
        """What scores start from."""
        spec = self.model.spec
        if spec.formula is None:
            return None
        any_problem = problem_frame([Problem.from_dims(spec.variant, spec.dtype)])
        return Formula(any_problem, self.model.pool, self.model.hardware, spec.formula)


def cuts(model: Model, problems: pd.DataFrame, scores: np.ndarray, threads: int) -> tuple[Cut, ...]:
    """The cuts of a model.

    ``problems`` are P training problems, ``scores`` [P, Q] the model's, -inf where a candidate cannot run.
    """
    problem, candidate = np.nonzero(scores >= scores.max(axis=1, keepdims=True) - NEAR)
    final = scores[problem, candidate]
    ends = [count for count in TREES if count < model.booster.num_trees()]
    missing = np.empty((len(ends), len(problem)))
    columns = model.features.problem_columns(problems), model.features.candidate_columns(model.pool)
    prior = model.spec.formula
    formula = None if prior is None else Formula(problems, model.pool, model.hardware, prior)
    for start in range(0, len(problem), BLOCK):
        part = slice(start, start + BLOCK)
        pairs, done = (problem[part], candidate[part]), 0
        matrix = model.features.gather(*columns, *pairs)
        total = np.zeros(len(matrix)) if formula is None else formula.score(*pairs)
        for number, end in enumerate(ends):
            total = total + model.booster.predict(
                matrix, start_iteration=done, num_iteration=end - done, num_threads=threads
            )
            missing[number, part], done = final[part] - total, end
    return tuple(
        Cut(trees=end, margin=trees.rounded(SPREADS * _spread(problem, values)))
        for end, values in zip(ends, missing, strict=True)
    )


def _spread(problem: np.ndarray, missing: np.ndarray) -> float:
    """Root mean square of what is missing from sums, less its mean in the problem; ``problem`` is sorted."""
    number = np.cumsum(first_of(problem)) - 1
    mean = np.bincount(number, missing) / np.bincount(number)
    return float(np.sqrt(np.mean((missing - mean[number]) ** 2)))
