"""The picks of a ranking on unseen problems, and how good they are.

The figure is the efficiency of the pick: its measured TFLOPS over the best measured TFLOPS of the problem. A pick
that was not measured, failed or cannot run counts 0; nothing is left out because it is inconvenient.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError
from tileseer.dataset import bootstrap, efficiency, own_choice
from tileseer.dataset.measurements import Measurements
from tileseer.model.model import Model
from tileseer.model.schema import Summary

WITHIN = 0.98
"""A pick this close to the best is as good as it: single timings do not tell them apart."""
BAD = 0.80


NEVER = -1
"""Fold of a problem that only trains."""


def has_validation_split(measurements: Measurements) -> bool:
    """Whether problems were set aside for validation; without, layers are left out in turn."""
    return bool((measurements.problems["split"] == "validation").any())


def validation_rows(measurements: Measurements) -> np.ndarray:
    """Rows of ``problems`` held out for validation, int [R].

    ``UserError`` when a validation problem, or its layer at another batch size, is also a training problem.
    """
    problems = measurements.problems
    held_out = (problems["split"] == "validation").to_numpy()
    training = problems[(problems["split"] == "train").to_numpy()]
    for column in ("problem_key", "layer_family"):
        shared = sorted(set(problems[column][held_out]) & set(training[column]))
        if shared:
            raise UserError(
                f"{measurements.operation}: {len(shared)} validation problems share their {column} with training "
                f"problems (first: {shared[0]}); an efficiency on them says nothing about unseen problems. "
                "Remove them from one of the two splits"
            )
    if not held_out.any():
        raise UserError(f"{measurements.operation}: the dataset has no problem with split validation")
    return np.flatnonzero(held_out)


def rank_pool(measurements: Measurements, model: Model, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a model's pool on the validation problems, and what it offers; as ``score`` takes them.

    Both [P, Q]; what is not scored is -inf. Measured candidates outside the pool are not offered; ``UserError`` when
    the pool has one that was not measured. Where a library offers the candidates, its own choice is one of them, and
    stands first unless the model is sure.
    """
    problems, position = measurements.problems, positions(measurements, model)
    supported = model.supported(problems)
    own = own_choice.of(measurements)
    if own is not None:
        supported &= own_choice.offered(measurements)[:, position]
    held_out = (problems["split"] == "validation").to_numpy()
    problem, candidate = np.nonzero(supported & held_out[:, None])
    scores = np.full((len(problems), len(measurements.candidates)), -np.inf)
    scores[problem, position[candidate]] = model.predict(problems, problem, candidate, threads)
    offered = np.zeros(scores.shape, bool)
    offered[:, position] = supported
    if own is not None and model.spec.own_margins is not None:
        has = np.flatnonzero(held_out & (own != own_choice.NONE))
        grouping = own_choice.grouping(problems["G"].to_numpy()[has], problems["C"].to_numpy()[has])
        scores[has] = own_choice.kept(scores[has], own[has], np.array(model.spec.own_margins)[grouping])
        offered[has, own[has]] = True
    return scores, offered


def positions(measurements: Measurements, model: Model) -> np.ndarray:
    """Row in ``measurements.candidates`` of each candidate of the pool, int [Q]; ``UserError`` if one has none."""
    position = pd.Index(measurements.candidates["candidate"]).get_indexer(model.pool["candidate"])
    if (position < 0).any():
        foreign = model.pool["candidate"][position < 0].iloc[0]
        raise UserError(f"{measurements.operation}: {foreign} is in the model's pool but missing from the dataset")
    return position


@dataclass(frozen=True)
class Scored:
    """The R validation problems on which something ran, and the picks of a ranking on them."""

    measurements: Measurements
    rows: np.ndarray
    """Row of ``measurements.problems`` of each."""
    fold: np.ndarray
    """int [P], in which fold each problem of ``measurements`` is held out, or ``NEVER``. A model that picks for a
    problem has learnt from those of the other folds."""
    achieved: np.ndarray
    """float64 [R, Q], measured efficiency of every candidate, 0 where it did not run."""
    pool: np.ndarray
    """bool [R, Q], what a selector may choose."""
    picks: np.ndarray
    """int [R], the candidate that is chosen."""
    ranked: np.ndarray
    """float64 [R, Q], efficiency of the candidates in the order of the ranking."""

    @property
    def problems(self) -> pd.DataFrame:
        """The scored problems, R rows."""
        return self.measurements.problems.iloc[self.rows]

    @property
    def training(self) -> np.ndarray:
        """Rows of ``measurements.problems`` that a model of some fold learnt from."""
        several = len(np.unique(self.fold[self.rows])) > 1
        return np.flatnonzero((self.fold == NEVER) | several)

    @property
    def apart(self) -> np.ndarray:
        """Which of ``training`` the model of each problem has learnt from, bool [R, T]."""
        return self.fold[self.rows][:, None] != self.fold[self.training][None, :]

    @property
    def picked(self) -> np.ndarray:
        """Efficiency of the picks, float64 [R]."""
        return self.ranked[:, 0]

    @property
    def best(self) -> np.ndarray:
        """The fastest measured candidate, int [R]."""
        return self.achieved.argmax(axis=1)

    def relative_errors(self) -> np.ndarray:
        """Relative standard error of each time, float64 [R, Q]; NaN where it is unknown."""
        error = self.measurements.relative_error
        if error is None:
            error = np.full(len(self.measurements.problem), np.nan)
        return efficiency.spread_out(self.measurements, self.rows, error, np.nan)


def score(
    measurements: Measurements, scores: np.ndarray, supported: np.ndarray, fold: np.ndarray | None = None
) -> Scored:
    """Score a ranking on the problems on which anything ran, of those with split ``validation`` or with a ``fold``.

    ``scores`` (float64 [P, Q], higher is better) and ``supported`` (bool [P, Q]: the CPU support rules pass and the
    candidate is published) cover every problem and candidate of ``measurements``, as a selection would see them.
    """
    if fold is None:
        fold = np.full(len(measurements.problems), NEVER)
        fold[validation_rows(measurements)] = 0
    rows = np.flatnonzero(fold != NEVER)
    achieved = efficiency.grid(measurements, rows)
    solvable = achieved.max(axis=1, initial=0.0) > 0
    rows, achieved = rows[solvable], achieved[solvable]
    if not len(rows):
        raise UserError(f"{measurements.operation}: no validation problem has a measured time")
    pool = supported[rows]
    order = np.argsort(np.where(pool, -scores[rows], np.inf), axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(pool, achieved, 0.0), order, axis=1)
    return Scored(measurements, rows, fold, achieved, pool, order[:, 0], ranked)


def figures(picked: np.ndarray) -> dict[str, Any]:
    """Fields of ``schema.Figures`` of efficiencies in 0..1."""
    return {"efficiency": Summary.of(picked), "percentiles": efficiency.percentiles(picked)}


def learnt(picked: np.ndarray) -> dict[str, Any]:
    """Fields of ``schema.Learnt`` of efficiencies in 0..1."""
    return {"efficiency": Summary.of(picked), "interval": bootstrap.intervals(picked)}


def metrics(ranked: np.ndarray) -> dict[str, Any]:
    """Fields of ``schema.Ranking`` of a ranking, the efficiency of each problem's candidates in its order, [R, Q]."""
    picked = ranked[:, 0]
    first = {k: ranked[:, :k].max(axis=1) for k in (1, 3, 5)}
    return {
        **figures(picked),
        **{f"top{k}": efficiency.percent(np.mean(best >= 1.0)) for k, best in first.items()},
        "efficiency_best_of_3": Summary.of(first[3]),
        "efficiency_best_of_5": Summary.of(first[5]),
        "within_2_percent": within(picked),
        "below_80_percent": efficiency.percent(np.mean(picked < BAD)),
        "interval": bootstrap.intervals(picked),
    }


def within(picked: np.ndarray) -> float:
    """Share of picks that are as good as the best, percent."""
    return efficiency.percent(np.mean(picked >= WITHIN))


def dims_text(problem: pd.Series) -> str:
    """The 19 dimensions of a problem as one line."""
    return " ".join(f"{name}={problem[name]}" for name in DIMS)
