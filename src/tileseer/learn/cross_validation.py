"""Scores of layers by models that have not seen them: folds of the training problems are left out in turn.

The margins of a library's own choice follow from them. No other model is cross-validated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tileseer.core.progress import Progress
from tileseer.data.dataset import Dataset
from tileseer.learn import own_choice
from tileseer.learn.learner import Recipe, learner_of
from tileseer.learn.rows import NO_FOLD, sampled


@dataclass(frozen=True, eq=False)
class Prepared:
    """The training pairs of a dataset as a learner prepared them, for models of all rows and for those of folds."""

    recipe: Recipe
    pairs: Dataset
    """n pairs (``rows.training_pairs``)."""
    teaching: np.ndarray
    """Which of them teach, bool [n]."""
    made: Any
    """What the learner made of those."""

    @classmethod
    def by(cls, recipe: Recipe, pairs: Dataset) -> Self:
        """Let the learner of a recipe prepare training pairs."""
        teaching = sampled(pairs, recipe.settings)
        return cls(recipe, pairs, teaching, learner_of(recipe).prepare(pairs.only(teaching)))


def out_of_fold(prepared: Prepared, fold: np.ndarray, recipe: Recipe) -> np.ndarray:
    """Return scores of the tried pairs by models of ``recipe`` that have not seen their fold, float64 [P, Q].

    ``fold`` (int [P]) is the fold of each problem; one in ``NO_FOLD`` teaches every model, and its scores are -inf.
    """
    pairs, learner = prepared.pairs, learner_of(recipe)
    few = sampled(pairs, recipe.settings)[prepared.teaching]
    of_row = fold[pairs.problem[prepared.teaching]]
    tried = own_choice.offered(pairs)
    scores = np.full(tried.shape, -np.inf)
    folds = np.unique(fold[fold != NO_FOLD])
    with Progress("cross-validate", len(folds), "models") as progress:
        for one in folds:
            model = learner.fit(prepared.made, few & (of_row != one))
            rows = np.flatnonzero(fold == one)
            scores[rows] = model.score(pairs.problems.iloc[rows], pairs.candidates, tried[rows])
            progress.add()
    return scores
