"""Grouped cross-validation inside the training set, and the choice of objective and hyperparameters by it.

Nothing here sees a validation problem. A choice stays with what is configured unless another one is better by more
than the standard error of the difference over problems: a search among equals would only pick the luckiest. The
search is among small models, which favours what learns fast: what it finds has to win again at the published size.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import lightgbm
import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.model import objectives
from tileseer.model.model import units
from tileseer.model.objectives import CHOICES, OBJECTIVES, Table
from tileseer.model.schema import Alternative, ChoiceRecord, Fold, Folds, Summary
from tileseer.settings.model import TrainingParameters

SPACE = {
    "num_leaves": (15, 31, 63, 127),
    "learning_rate": (0.05, 0.1, 0.15),
    "min_child_samples": (10, 20, 50, 100),
    "feature_fraction": (0.4, 0.55, 0.7, 0.85),
    "reg_lambda": (0.1, 1.0, 10.0),
}
"""Hyperparameters that a search draws from."""
NEAR = 0.97
"""Efficiency from which a candidate is as good as the best for a guaranteed set."""
NEAR_BEST = 0.6
"""Efficiency from which rows make a candidate's offset: those between which a selection has to decide."""


@dataclass(frozen=True)
class FoldOfRow:
    """Which fold each row of a table is held out in."""

    of_row: np.ndarray
    groups: np.ndarray
    """Number of groups of each fold."""


@dataclass(frozen=True)
class Choice:
    """The objective and settings that cross-validation chose, and what it saw."""

    objective: str
    settings: TrainingParameters
    score: np.ndarray
    """Out-of-fold scores of every row."""
    record: ChoiceRecord
    """For the manifest: every alternative with its figures, and the one that was taken."""
    trees: int
    """Trees to train; 0 leaves a prior as it is."""


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
    objective: str, data: Table, folds: FoldOfRow, candidates: int, settings: TrainingParameters, trees: int,
    threads: int, held_out_folds: int | None = None,
) -> np.ndarray:  # fmt: skip
    """The score of every row by a model that has not seen the row's group, float64 [n].

    Only the first ``held_out_folds`` are held out in turn, if that is given; rows of the others are NaN.
    """
    score = np.full(len(data.rows.problem), np.nan)
    for fold in range(len(folds.groups) if held_out_folds is None else held_out_folds):
        learnt = np.flatnonzero(data.rows.learn & (folds.of_row != fold))
        booster = objectives.fit(objective, data, learnt, settings, trees, threads)
        offset = offsets(objective, booster, data, learnt, candidates, settings, threads)
        held_out = np.flatnonzero(folds.of_row == fold)
        score[held_out] = objectives.predict(booster, data, held_out, threads) + offset[data.rows.candidate[held_out]]
    return score


def offsets(
    objective: str, booster: lightgbm.Booster | None, data: Table, learnt: np.ndarray, candidates: int,
    settings: TrainingParameters, threads: int,
) -> np.ndarray:  # fmt: skip
    """The mean residual of each candidate over its near-best rows among ``learnt``, shrunk, float64 [Q].

    Scores of rankings and ensembles have the spread of the logarithms, but no level: their residuals are those within
    the problem. 0 with the reference's features: who reads that model computes features and knows of no offset.
    """
    if settings.features == "reference":
        return np.zeros(candidates)
    near = learnt[data.rows.efficiency[learnt] >= NEAR_BEST]
    learnt_as = {"corrected": "log_tflops", "lambdarank": "relative", "ensemble": "relative"}.get(objective, objective)
    residual = data.rows.label(learnt_as, settings.relative_floor)[near]
    if booster is not None:
        residual = residual - objectives.predict(booster, data, near, threads)
    if data.prior is not None:
        residual = residual - data.prior[near]
    if learnt_as != objective:
        residual = objectives.centred(data.rows.problem[near], residual)
    total = np.bincount(data.rows.candidate[near], residual, minlength=candidates)
    count = np.bincount(data.rows.candidate[near], minlength=candidates)
    return total / np.maximum(count + settings.offset_prior, 1)


def picks(problem: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The row with the highest score of each problem, by problem; of equal scores the first."""
    order = np.lexsort((np.arange(len(score)), -score, problem))
    return order[np.flatnonzero(np.diff(problem[order], prepend=-1))]


def choose(
    data: Table, folds: FoldOfRow, candidates: int, keys: np.ndarray, settings: TrainingParameters, threads: int
) -> Choice:
    """Choose objective and hyperparameters by the mean out-of-fold efficiency of the picks.

    ``keys``: key of each problem, which the sampling of rows is drawn by. Only ``cv_rows_per_problem`` rows of each
    problem are learnt from here.
    """
    rows, few = data.rows, settings.cv_rows_per_problem
    learn = rows.learn & objectives.kept(rows.problem, rows.efficiency, keys, few, few // 2, settings.seed)
    small = replace(data, rows=replace(rows, learn=learn))
    # An ensemble is tried as it is published, its members sharing the trees: as a sum of whole ones it would be three
    # times as large as what it is compared with.
    names = CHOICES if settings.target == "auto" else (settings.target,)
    trees = settings.cv_estimators
    scores = {name: out_of_fold(name, small, folds, candidates, settings, trees, threads) for name in names}
    objective = best_picks(data, scores)
    trials: dict[str, np.ndarray] = {"configured": scores[objective]}
    drawn = {"configured": settings, **_trials(settings)}
    for name, trial in drawn.items():
        if name not in trials:
            trials[name] = out_of_fold(objective, small, folds, candidates, trial, trees, threads)
    best = best_picks(data, trials)
    record = ChoiceRecord(
        objectives=_compared(_achieved(data, scores), objective),
        hyperparameters=[
            entry.model_copy(update={"values": {field: getattr(drawn[entry.name], field) for field in SPACE}})
            for entry in _compared(_achieved(data, trials), best)
        ],
    )
    chosen = Choice(objective, drawn[best], trials[best], record, settings.n_estimators)
    configured = Choice(names[0], settings, scores[names[0]], record, settings.n_estimators)
    if (objective, best) == (names[0], "configured") or not settings.confirm_folds:
        return chosen
    return _confirmed(configured, chosen, data, folds, candidates, threads)


def _confirmed(
    configured: Choice, chosen: Choice, data: Table, folds: FoldOfRow, candidates: int, threads: int
) -> Choice:
    """``chosen`` if it is better than what is configured with all trees and rows too, else the latter."""
    held_out_folds = min(configured.settings.confirm_folds, len(folds.groups))
    at = np.flatnonzero(folds.of_row < held_out_folds)
    achieved = {}
    for name, choice in (("configured", configured), ("chosen", chosen)):
        score = out_of_fold(
            choice.objective, data, folds, candidates, choice.settings, choice.trees, threads, held_out_folds
        )
        achieved[name] = data.rows.efficiency[at[picks(data.rows.problem[at], score[at])]]
    kept = _better(achieved)
    entries = [
        entry.model_copy(update={"objective": choice.objective, "trees": choice.trees, "folds": held_out_folds})
        for entry, choice in zip(_compared(achieved, kept), (configured, chosen), strict=True)
    ]
    winner = chosen if kept == "chosen" else configured
    return replace(winner, record=chosen.record.model_copy(update={"confirmation": entries}))


def fold_metrics(
    data: Table, folds: FoldOfRow, score: np.ndarray, objective: str, settings: TrainingParameters
) -> Folds:
    """Figures of each fold; errors only where scores are predictions."""
    label = data.rows.label(objective, settings.relative_floor) if not OBJECTIVES[objective].members else None
    metrics = []
    for fold, groups in enumerate(folds.groups):
        held_out = np.flatnonzero(folds.of_row == fold)
        at = held_out[picks(data.rows.problem[held_out], score[held_out])]
        summary = efficiency.summary(data.rows.efficiency[at])
        rmse, r2 = _errors(objective, label, held_out, score)
        metrics.append(
            Fold(
                fold=fold,
                rmse=rmse,
                r2=r2,
                **{f"{name}_efficiency": value for name, value in summary.items()},
                train_size=int(np.count_nonzero(data.rows.learn & (folds.of_row != fold))),
                val_size=len(held_out),
                val_groups=int(groups),
            )
        )
    return Folds(metrics)


def picked(data: Table, score: np.ndarray, keys: np.ndarray) -> pd.DataFrame:
    """``problem_key``, ``efficiency`` of the pick, and ``gap`` of each problem, in key order.

    The gap is how far below the pick's score the first candidate stands that is as good as the best (``NEAR``), in
    ``units``.
    """
    problem = data.rows.problem
    at = picks(problem, score)
    near = np.full(problem.max() + 1, -np.inf)
    good = data.rows.efficiency >= NEAR
    np.maximum.at(near, problem[good], score[good])
    found = pd.DataFrame(
        {
            "problem_key": keys[problem[at]],
            "efficiency": data.rows.efficiency[at],
            "gap": (score[at] - near[problem[at]]) / units(problem, score),
        }
    )
    return found.sort_values("problem_key", ignore_index=True)


def _errors(
    objective: str, label: np.ndarray | None, held_out: np.ndarray, score: np.ndarray
) -> tuple[float | None, float | None]:
    """RMSE and R2 in the space of the target, over the measured rows; None for a ranking, which has none."""
    if label is None or objective == "lambdarank":
        return None, None
    known = held_out[~np.isnan(label[held_out])]
    error = label[known] - score[known]
    variance = float(np.var(label[known]))
    r2 = 1 - float(np.mean(error**2)) / variance if variance else 0.0
    return round(float(np.sqrt(np.mean(error**2))), 6), round(r2, 6)


def best_picks(data: Table, scores: dict[str, np.ndarray]) -> str:
    """The name of the scores with the best picks; the first unless another is better beyond a standard error."""
    return _better(_achieved(data, scores))


def _achieved(data: Table, scores: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: data.rows.efficiency[picks(data.rows.problem, score)] for name, score in scores.items()}


def _better(achieved: dict[str, np.ndarray]) -> str:
    """The first name, or the best of those that are better than it by more than a standard error."""
    first, *others = achieved
    gains = {name: _gain(achieved[name], achieved[first]) for name in others}
    better = [name for name, (gain, error) in gains.items() if gain > error]
    return max(better, key=lambda name: gains[name][0], default=first)


def _gain(values: np.ndarray, base: np.ndarray) -> tuple[float, float]:
    """The mean of paired differences and its standard error."""
    difference = values - base
    return float(difference.mean()), float(difference.std() / np.sqrt(len(difference)))


def _compared(achieved: dict[str, np.ndarray], chosen: str) -> list[Alternative]:
    base = next(iter(achieved.values()))
    return [
        Alternative(
            name=name,
            chosen=name == chosen,
            out_of_fold_efficiency=Summary.of(values),
            gain=efficiency.percent(_gain(values, base)[0]),
            standard_error=efficiency.percent(_gain(values, base)[1]),
        )
        for name, values in achieved.items()
    ]


def _trials(settings: TrainingParameters) -> dict[str, TrainingParameters]:
    draw = np.random.default_rng([settings.seed, 1])
    trials = {}
    for number in range(settings.search_trials):
        values = {field: choices[draw.integers(len(choices))] for field, choices in SPACE.items()}
        trials[f"trial {number + 1}"] = settings.model_copy(update=values)
    return trials
