"""The picks of a ranking on unseen problems, and how good they are.

The figure is the efficiency of the pick: its measured TFLOPS over the best measured TFLOPS of the problem. A pick
that was not measured, failed or cannot run counts 0; nothing is left out because it is inconvenient.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.dataset.dataset import Dataset
from tileseer.learn import efficiency, own_choice
from tileseer.learn.cross_validation import NO_FOLD
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Summary
from tileseer.problems.problem import DIMS

WITHIN = 0.98
"""A pick this close to the best is as good as it: single timings do not tell them apart."""
BAD = 0.80


def has_validation_split(dataset: Dataset) -> bool:
    """Whether problems were set aside for validation; without, layers are left out in turn."""
    return bool(dataset.held_out.any())


def validation_rows(dataset: Dataset) -> np.ndarray:
    """Rows of ``problems`` held out for validation, int [R].

    ``UserError`` when a validation problem, or its layer at another batch size, is also a training problem.
    """
    problems = dataset.problems
    held_out, training = dataset.held_out, problems[dataset.trains]
    for column in ("problem_key", "layer_family"):
        shared = sorted(set(problems[column][held_out]) & set(training[column]))
        if shared:
            raise UserError(
                f"{dataset.operation}: {len(shared)} validation problems share their {column} with training "
                f"problems (first: {shared[0]}); an efficiency on them says nothing about unseen problems. "
                "Remove them from one of the two splits"
            )
    if not held_out.any():
        raise UserError(f"{dataset.operation}: the dataset has no problem with split validation")
    return np.flatnonzero(held_out)


def has_pick(dataset: Dataset) -> np.ndarray:
    """On which problems something ran, bool [P]; without those that a selector leaves to a library."""
    own = own_choice.library_choices(dataset)
    return dataset.best_tflops > 0 if own is None else own != own_choice.NONE


def positions(dataset: Dataset, model: Model) -> np.ndarray:
    """Row in ``dataset.candidates`` of each candidate of the pool, int [Q]; ``UserError`` if one has none."""
    position = pd.Index(dataset.candidates["candidate"]).get_indexer(model.pool["candidate"])
    if (position < 0).any():
        foreign = model.pool["candidate"][position < 0].iloc[0]
        raise UserError(f"{dataset.operation}: {foreign} is in the model's pool but missing from the dataset")
    return position


def listed(dataset: Dataset, model: Model) -> np.ndarray | None:
    """What a library lists for each problem, of what can run it, bool [P, pool]; None where no library lists any."""
    if own_choice.library_choices(dataset) is None:
        return None
    return own_choice.offered(dataset)[:, positions(dataset, model)] & model.supported(dataset.problems)


@dataclass(frozen=True, eq=False)
class Scored:
    """The R held-out problems on which something ran, and the picks of a ranking on them."""

    dataset: Dataset
    rows: np.ndarray
    """Row of ``dataset.problems`` of each."""
    fold: np.ndarray
    """int [P], in which fold each problem of the dataset is held out, or ``NO_FOLD``. A model that picks for a problem
    has learnt from those of the other folds."""
    offered: np.ndarray
    """bool [P, Q], what a selector may choose on each problem of the dataset."""
    achieved: np.ndarray
    """float64 [R, Q], measured efficiency of every candidate, 0 where it did not run."""
    picks: np.ndarray
    """int [R], the candidate that is chosen."""
    ranked: np.ndarray
    """float64 [R, Q], efficiency of the candidates in the order of the ranking."""

    @cached_property
    def problems(self) -> pd.DataFrame:
        """The scored problems, R rows."""
        return self.dataset.problems.iloc[self.rows]

    @cached_property
    def pool(self) -> np.ndarray:
        """What a selector may choose on the scored problems, bool [R, Q]."""
        return self.offered[self.rows]

    @cached_property
    def training(self) -> np.ndarray:
        """Rows of ``dataset.problems`` that a model of some fold learnt from."""
        several = len(np.unique(self.fold[self.rows])) > 1
        return np.flatnonzero((self.fold == NO_FOLD) | several)

    def apart(self, row: int) -> np.ndarray:
        """Which of ``training`` the model of a problem has learnt from, bool [T]."""
        return np.asarray(self.fold[self.training] != self.fold[self.rows[row]])

    @property
    def picked(self) -> np.ndarray:
        """Efficiency of the picks, float64 [R]."""
        return self.ranked[:, 0]

    @cached_property
    def best(self) -> np.ndarray:
        """The fastest measured candidate, int [R]."""
        return self.achieved.argmax(axis=1)

    @cached_property
    def relative_errors(self) -> np.ndarray:
        """Relative standard error of each time, float64 [R, Q]; NaN where it is unknown."""
        return self.dataset.spread_out(self.rows, self.dataset.relative_error, np.nan)


def score_ranking(dataset: Dataset, scores: np.ndarray, offered: np.ndarray, fold: np.ndarray | None = None) -> Scored:
    """Score a ranking on the problems on which anything ran, of those with split ``validation`` or with a ``fold``.

    ``scores`` (float64 [P, Q], higher is better) and ``offered`` (bool [P, Q]: the CPU support rules pass and the
    candidate is published) cover every problem and candidate of the dataset, as a selection would see them.
    """
    if fold is None:
        fold = np.full(len(dataset.problems), NO_FOLD)
        fold[validation_rows(dataset)] = 0
    rows = np.flatnonzero((fold != NO_FOLD) & has_pick(dataset))
    if not len(rows):
        raise UserError(f"{dataset.operation}: no validation problem has a measured time")
    achieved, pool = dataset.grid(rows), offered[rows]
    order = np.argsort(np.where(pool, -scores[rows], np.inf), axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(pool, achieved, 0.0), order, axis=1)
    return Scored(dataset, rows, fold, offered, achieved, order[:, 0], ranked)


def rank_held_out(model: Model, dataset: Dataset, threads: int = 1) -> Scored:
    """The picks of a model on the problems that were held out for validation.

    Measured candidates outside the model's pool are not offered; ``UserError`` when the pool has one that was not
    measured. Where a library offers the candidates, its own choice is one of them, and comes first unless the model is
    sure.
    """
    problems, rows = dataset.problems, validation_rows(dataset)
    rows = rows[has_pick(dataset)[rows]]
    own, lists = own_choice.library_choices(dataset), listed(dataset, model)
    offered = np.zeros((len(problems), len(dataset.candidates)), bool)
    offered[:, positions(dataset, model)] = model.supported(problems) if lists is None else lists
    scores = np.full(offered.shape, -np.inf)
    of_rows = None if lists is None else lists[rows]
    scores[rows] = model.predict(problems.iloc[rows], dataset.candidates, threads, of_rows)
    if own is not None and model.spec.own_margins is not None:
        grouping = own_choice.grouping(problems["G"].to_numpy()[rows], problems["C"].to_numpy()[rows])
        scores[rows] = own_choice.kept(scores[rows], own[rows], np.array(model.spec.own_margins)[grouping])
        offered[rows, own[rows]] = True
    return score_ranking(dataset, scores, offered)


def figures(picked: np.ndarray) -> dict[str, Any]:
    """Fields of ``validation_report.PickFigures`` of efficiencies in 0..1."""
    return {"efficiency": Summary.of(picked), "percentiles": efficiency.percentiles(picked)}


def metrics(ranked: np.ndarray) -> dict[str, Any]:
    """Fields of ``validation_report.Ranking``: efficiency of each problem's candidates in their order, [R, Q]."""
    picked = ranked[:, 0]
    first = {k: ranked[:, :k].max(axis=1) for k in (1, 2, 3, 5)}
    return {
        **figures(picked),
        **{f"top{k}": efficiency.percent(np.mean(first[k] >= 1.0)) for k in (1, 3, 5)},
        "efficiency_best_of_2": Summary.of(first[2]),
        "efficiency_best_of_3": Summary.of(first[3]),
        "efficiency_best_of_5": Summary.of(first[5]),
        "within_2_percent": within(picked),
        "below_80_percent": efficiency.percent(np.mean(picked < BAD)),
        "interval": efficiency.intervals(picked),
    }


def within(picked: np.ndarray) -> float:
    """Share of picks that are as good as the best, percent."""
    return efficiency.percent(np.mean(picked >= WITHIN))


def dims_text(problem: pd.Series | Mapping[str, int]) -> str:
    """The 19 dimensions of a problem as one line."""
    return " ".join(f"{name}={problem[name]}" for name in DIMS)
