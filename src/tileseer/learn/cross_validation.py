"""Grouped cross-validation inside the training set: what the model is worth on problems that it has not seen.

Nothing here sees a validation problem, and nothing is chosen by it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.config.model import TrainingParameters
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.dataset.dataset import Dataset
from tileseer.learn import efficiency, own_choice, ranking
from tileseer.learn import fit as fits
from tileseer.learn.fit import Samples
from tileseer.learn.model_schema import Fold, Folds

LAYER_FOLDS = 5
"""Parts in which layers are left out in turn, while the others train, where no problems were set aside."""


@dataclass(frozen=True)
class CrossValidation:
    """What models are worth that have not seen a problem's group."""

    folds: Folds
    picks: pd.DataFrame
    """Of each training problem ``problem_key``, and ``efficiency`` (0..1) of the pick, in key order."""
    margins: list[float] | None
    """The margins of the library's own choice; None where no library chooses."""


def cross_validate(samples: Samples) -> CrossValidation:
    """Cross-validate small models; margins are in deviations of the scores, so they hold for the published one too."""
    pairs, settings = samples.pairs, samples.recipe.settings
    own = own_choice.library_choices(pairs)
    of_fold = deal(samples, settings.cv_group, settings.folds, settings.seed)
    score = out_of_fold(samples, of_fold, settings)
    offered = np.flatnonzero(samples.offered[pairs.candidate])
    parts = [offered[of_fold[offered] == fold] for fold in range(settings.folds)]
    return CrossValidation(
        folds=Folds([_figures(samples, score, part, fold) for fold, part in enumerate(parts)]),
        picks=picked(pairs.only(offered), score[offered]),
        margins=None if own is None else own_choice.margins(pairs, spread(samples, score), own),
    )


def assign_folds(groups: Sequence[str], sizes: Sequence[int], folds: int, seed: int) -> np.ndarray:
    """A fold for each distinct group, int [groups]: largest group first, into the fold with fewest rows.

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


def deal(samples: Samples, group: str, folds: int, seed: int) -> np.ndarray:
    """The fold of each pair, int [n]; folds share no ``group`` (a column of the problems)."""
    group_of_problem = samples.pairs.problems[group].to_numpy()
    groups, number, sizes = np.unique(group_of_problem[samples.pairs.problem], return_inverse=True, return_counts=True)
    return assign_folds(groups.tolist(), sizes.tolist(), folds, seed)[number]


def out_of_fold(
    samples: Samples, of_fold: np.ndarray, settings: TrainingParameters, progress: Progress | None = None
) -> np.ndarray:
    """The score of every pair by a model of ``fit.small(settings)`` that has not seen its fold, float64 [n].

    ``of_fold`` (int [n]) is the fold of each pair; ``progress`` counts the trees.
    """
    size = fits.small(settings)
    learn = fits.sampled(samples.pairs, samples.learn, size.rows_per_problem, size.top_rows, settings.seed)
    return scores_of_folds(samples, learn, of_fold, size, progress)


def scores_of_folds(
    samples: Samples,
    learn: np.ndarray,
    of_fold: np.ndarray,
    settings: TrainingParameters,
    progress: Progress | None = None,
) -> np.ndarray:
    """The score of every pair by a model of the pairs ``learn`` (bool [n]) of the other folds, float64 [n].

    A pair whose fold is ``ranking.NEVER`` teaches every model, and its score is -inf.
    """
    folds = np.unique(of_fold[of_fold != ranking.NEVER])
    score = np.full(len(of_fold), -np.inf)
    with Progress("cross-validate", len(folds) * settings.n_estimators, "trees") as own:
        for fold in folds:
            held_out = of_fold == fold
            booster = fits.grow(samples, learn & ~held_out, settings, progress or own)
            score[held_out] = fits.scores_of(booster, samples, held_out)
    return score


def spread(samples: Samples, score: np.ndarray) -> np.ndarray:
    """Scores of pairs as a table of all problems and candidates, float64 [P, Q]; -inf where there is none."""
    pairs = samples.pairs
    return pairs.spread_out(np.arange(len(pairs.problems)), score, -np.inf)


def picks(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The row with the highest score of each problem, by problem; of equal scores the first."""
    order = np.lexsort((np.arange(len(score)), -score, problem))
    return order[np.flatnonzero(np.diff(problem[order], prepend=-1))]


def _figures(samples: Samples, score: np.ndarray, held_out: np.ndarray, fold: int) -> Fold:
    """Figures of a fold, of the pairs ``held_out`` (positions)."""
    pairs, group = samples.pairs, samples.recipe.settings.cv_group
    at = held_out[picks(pairs.problem[held_out], score[held_out])]
    ran = held_out[pairs.ok[held_out]]
    label = fits.target(pairs.efficiency[ran])
    error, variance = float(np.mean((label - score[ran]) ** 2)), float(np.var(label))
    return Fold(
        fold=fold,
        rmse=round(error**0.5, 6),
        r2=round(1 - error / variance, 6) if variance else 0.0,
        **{f"{name}_efficiency": value for name, value in efficiency.summary(pairs.efficiency[at]).items()},
        train_size=int(samples.learn.sum() - samples.learn[held_out].sum()),
        val_size=len(held_out),
        val_groups=int(pairs.problems[group].iloc[pairs.problem[held_out]].nunique()),
    )


def picked(pairs: Dataset, score: np.ndarray) -> pd.DataFrame:
    """``problem_key`` and ``efficiency`` of the pick of each problem, in key order."""
    at = picks(pairs.problem, score)
    keys = pairs.problems["problem_key"].to_numpy()[pairs.problem[at]]
    table = pd.DataFrame({"problem_key": keys, "efficiency": pairs.efficiency[at]})
    return table.sort_values("problem_key", ignore_index=True)
