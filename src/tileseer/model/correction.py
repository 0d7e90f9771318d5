"""Correction of a prior by measured rows: the share of it that is kept, the labels of the correction, and its trees.

All three are chosen by cross-validation among the measured rows. They are judged by the error of the logarithms within
each problem, not by picks: the best of a problem's few measured rows need not be its best candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tileseer.model import cross_validation, objectives
from tileseer.model.cross_validation import Choice, FoldOfRow
from tileseer.model.objectives import Table
from tileseer.model.schema import ChoiceRecord, CorrectionTrial
from tileseer.settings.model import TrainingParameters

WEIGHTS = (1.0, 0.5, 0.0)
"""Shares of the prior's score that a correction is tried with; 0 forgets it."""
TREES = (0, 10, 30, 100, 300)
"""Trees that it is tried with, beside all; 0 leaves the prior as it is."""
LABELS = ("level", "within")
"""``level``: what the prior misses of ln(TFLOPS). ``within``: that less its mean in the problem, of which one or two
rows of a problem leave little; many of them tell it better."""


@dataclass(frozen=True)
class Correction:
    """One way to correct, and what cross-validation saw of it."""

    weight: float
    table: Table
    """What its trees are fitted with."""
    trees: int
    error: float
    """Mean square of the out-of-fold error, less its mean in each problem."""
    score: np.ndarray
    """Out-of-fold scores of every row, the prior's share included."""


def choose(
    data: Table, folds: FoldOfRow, settings: TrainingParameters, threads: int, weights: Sequence[float] = WEIGHTS
) -> tuple[Choice, Correction]:
    """The choice for the manifest and the correction that it is, of a prior with one of ``weights``.

    Small models choose the weight, and the labels: by picks among the measured rows, and beyond a standard error.
    Models of the published size say how many trees.
    """
    if data.prior is None:
        raise ValueError("there is no prior to correct")
    tried = {
        labels: [
            _crossed(replace(data, prior=weight * data.prior, within=labels == "within"), weight, folds, settings,
                     settings.cv_estimators, threads)
            for weight in weights
        ]
        for labels in LABELS
    }  # fmt: skip
    best = {labels: min(corrections, key=lambda one: one.error) for labels, corrections in tried.items()}
    labels = cross_validation.best_picks(data, {name: one.score for name, one in best.items()})
    chosen = best[labels]
    final = _crossed(chosen.table, chosen.weight, folds, settings, settings.n_estimators, threads)
    entries = [
        _trial(one).model_copy(update={"labels": name, "chosen": one is chosen})
        for name, ones in tried.items()
        for one in ones
    ]
    record = ChoiceRecord(correction=entries, published=_trial(final))
    return Choice("corrected", settings, final.score, record, final.trees), final


def _trial(correction: Correction) -> CorrectionTrial:
    rmse = round(float(np.sqrt(correction.error)), 6)
    return CorrectionTrial(prior_weight=correction.weight, trees=correction.trees, rmse=rmse)


def _crossed(
    table: Table, weight: float, folds: FoldOfRow, settings: TrainingParameters, most: int, threads: int
) -> Correction:
    """The correction of one table with the number of trees, ``most`` or fewer, that errs least out of fold."""
    assert table.prior is not None
    # Without the prior there is nothing that could be left as it is.
    counts = [count for count in TREES if count < most and (count or weight)] + [most]
    found = {count: table.prior.copy() for count in counts}
    for fold in range(len(folds.groups)):
        learnt = np.flatnonzero(table.rows.learn & (folds.of_row != fold))
        held_out = np.flatnonzero(folds.of_row == fold)
        booster = objectives.fit("log_tflops", table, learnt, settings, most, threads)
        for count in counts:
            if count:
                found[count][held_out] += booster.predict(
                    table.matrix[held_out], num_iteration=count, num_threads=threads
                )
    error = {count: _error(table, score) for count, score in found.items()}
    trees = min(counts, key=lambda count: (error[count], count))
    return Correction(weight, table, trees, error[trees], found[trees])


def _error(table: Table, score: np.ndarray) -> float:
    timed = np.flatnonzero(table.rows.learn)
    missed = table.rows.label("log_tflops", 0)[timed] - score[timed]
    return float(np.mean(objectives.centred(table.rows.problem[timed], missed) ** 2))
