"""Grouped cross-validation inside the training set: what a learner is worth on layers that it has not seen.

Nothing here sees a validation problem. Only the margins of a library's own choice follow from it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.data.dataset import Dataset
from tileseer.learn import own_choice
from tileseer.learn.learner import Recipe, learner_of
from tileseer.learn.rows import sampled

LAYER_FOLDS = 5
"""Parts in which layers are left out in turn, while the others train, where no problems were set aside."""
FOLDS_WITHOUT_MARGINS = 3
"""Folds at most where no margins of a library's own choice follow from them."""
NO_FOLD = -1
"""Fold of a problem that only trains."""


@dataclass(frozen=True)
class CrossValidation:
    """What models are worth that have not seen a problem's layer."""

    picks: pd.DataFrame
    """Of each training problem ``problem_key`` and ``efficiency`` (0..1) of the pick, by key."""
    scores: np.ndarray
    """Of the tried pairs, by models that have not seen their fold, float64 [P, Q]."""
    fold: np.ndarray
    """int [P], ``NO_FOLD`` of a problem without pairs."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The training pairs of a dataset as a learner prepared them, for models of all rows and for those of folds."""

    recipe: Recipe
    pairs: Dataset
    """n pairs (``rows.training_pairs``)."""
    teaching: np.ndarray
    """Which of them teach, bool [n]."""
    made: object
    """What the learner made of those."""

    @classmethod
    def by(cls, recipe: Recipe, pairs: Dataset) -> "Prepared":
        """Let the learner of a recipe prepare training pairs."""
        teaching = sampled(pairs, recipe.settings)
        return cls(recipe, pairs, teaching, learner_of(recipe).prepare(pairs.only(teaching)))


def cross_validate(prepared: Prepared) -> CrossValidation:
    """Cross-validate small models; the picks are among the candidates that the published model offers."""
    pairs, settings = prepared.pairs, prepared.recipe.settings
    has_margins = own_choice.library_choices(pairs) is not None
    folds = settings.folds if has_margins else min(settings.folds, FOLDS_WITHOUT_MARGINS)
    fold = deal(pairs.problems["layer_family"].to_numpy(), pairs.problem, folds, settings.seed)
    scores = out_of_fold(prepared, fold, prepared.recipe.small)
    offered = np.where(prepared.recipe.offers(pairs), scores, -np.inf)
    rows = np.flatnonzero(np.isfinite(offered).any(axis=1))
    reached = pairs.grid(rows)[np.arange(len(rows)), offered[rows].argmax(axis=1)]
    picks = pd.DataFrame({"problem_key": pairs.problems["problem_key"].to_numpy()[rows], "efficiency": reached})
    return CrossValidation(picks.sort_values("problem_key", ignore_index=True), scores, fold)


def assign_folds(groups: Sequence[str], sizes: Sequence[int], folds: int, seed: int) -> np.ndarray:
    """Return a fold for each distinct group, int [groups]: largest group first, into the fold with fewest rows.

    Groups of one size go in the order of their hash, so a fold does not depend on the order of the table.
    """
    if len(groups) < folds:
        raise UserError(f"cross-validation: {folds} folds need as many groups, there are {len(groups)}; lower `folds`")
    digests = [hashlib.sha256(f"{seed},{group}".encode()).hexdigest() for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (-sizes[i], digests[i]))
    filled = [0] * folds
    assigned = np.empty(len(groups), np.int64)
    for i in order:
        fold = filled.index(min(filled))
        assigned[i] = fold
        filled[fold] += int(sizes[i])
    return assigned


def deal(layer: np.ndarray, problem: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each problem, int [P], of those without rows ``NO_FOLD``; folds share no ``layer``, text [P].

    ``problem`` (int [n]) is the problem of each row, of which folds get about the same number.
    """
    layers, number, sizes = np.unique(layer[problem], return_inverse=True, return_counts=True)
    fold = np.full(len(layer), NO_FOLD)
    fold[problem] = assign_folds(layers.tolist(), sizes.tolist(), folds, seed)[number]
    return fold


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
