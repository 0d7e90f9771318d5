"""Grouped cross-validation inside the training set: what the model is worth on problems that it has not seen.

Nothing here sees a validation problem, and nothing is chosen by it; its gaps calibrate the guarantee of serving.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.dataset import efficiency
from tileseer.model import regression, rows
from tileseer.model.model import units
from tileseer.model.regression import Table
from tileseer.model.rows import Rows
from tileseer.model.schema import Fold, Folds
from tileseer.settings.model import TrainingParameters

NEAR = 0.97
"""Efficiency from which a candidate is as good as the best for a guaranteed set."""


@dataclass(frozen=True)
class FoldOfRow:
    """Which fold each row of a table is held out in."""

    of_row: np.ndarray
    groups: np.ndarray
    """Number of groups of each fold."""


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


def folds_of(problem: np.ndarray, group_of_problem: np.ndarray, folds: int, seed: int) -> FoldOfRow:
    """Deal the rows of ``problem`` to folds that share no group."""
    groups, group, sizes = np.unique(group_of_problem[problem], return_inverse=True, return_counts=True)
    assigned = assign_folds(groups.tolist(), sizes.tolist(), folds, seed)
    return FoldOfRow(assigned[group], np.bincount(assigned, minlength=folds))


def out_of_fold(
    data: Table, folds: FoldOfRow, keys: np.ndarray, settings: TrainingParameters, threads: int,
    progress: Progress | None = None,
) -> np.ndarray:  # fmt: skip
    """The score of every row by a small model that has not seen the row's group, float64 [n].

    Small: ``cv_estimators`` trees of ``cv_rows_per_problem`` rows of each problem. ``keys``: key of each problem.
    ``progress`` counts the trees.
    """
    few = settings.cv_rows_per_problem
    learn = rows.fewer(data.rows, keys, few, few // 2, settings.seed).learn
    score = np.empty(len(data.rows.problem))
    for fold in range(len(folds.groups)):
        learnt = np.flatnonzero(learn & (folds.of_row != fold))
        booster = regression.fit(data, learnt, settings, settings.cv_estimators, threads, progress)
        held_out = np.flatnonzero(folds.of_row == fold)
        score[held_out] = regression.predict(booster, data, held_out, threads)
    return score


def picks(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The row with the highest score of each problem, by problem; of equal scores the first."""
    order = np.lexsort((np.arange(len(score)), -score, problem))
    return order[np.flatnonzero(np.diff(problem[order], prepend=-1))]


def fold_metrics(of: Rows, folds: FoldOfRow, score: np.ndarray) -> Folds:
    """Figures of each fold."""
    metrics = []
    for fold, groups in enumerate(folds.groups):
        held_out = np.flatnonzero(folds.of_row == fold)
        at = held_out[picks(of.problem[held_out], score[held_out])]
        summary = efficiency.summary(of.efficiency[at])
        known = held_out[~np.isnan(of.tflops[held_out])]
        label = regression.target(of.efficiency[known])
        error, spread = float(np.mean((label - score[known]) ** 2)), float(np.var(label))
        metrics.append(
            Fold(
                fold=fold,
                rmse=round(error**0.5, 6),
                r2=round(1 - error / spread, 6) if spread else 0.0,
                **{f"{name}_efficiency": value for name, value in summary.items()},
                train_size=int(np.count_nonzero(of.learn & (folds.of_row != fold))),
                val_size=len(held_out),
                val_groups=int(groups),
            )
        )
    return Folds(metrics)


def picked(of: Rows, score: np.ndarray, keys: np.ndarray) -> pd.DataFrame:
    """``problem_key``, ``efficiency`` of the pick, and ``gap`` of each problem, in key order.

    The gap is how far below the pick's score the first candidate stands that is as good as the best (``NEAR``), in
    ``units``.
    """
    problem = of.problem
    at = picks(problem, score)
    near = np.full(problem.max() + 1, -np.inf)
    good = of.efficiency >= NEAR
    np.maximum.at(near, problem[good], score[good])
    found = pd.DataFrame(
        {
            "problem_key": keys[problem[at]],
            "efficiency": of.efficiency[at],
            "gap": (score[at] - near[problem[at]]) / units(problem, score),
        }
    )
    return found.sort_values("problem_key", ignore_index=True)
