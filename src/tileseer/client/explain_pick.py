"""Explanation of a pick: the ranking, what speaks for its first candidate, and the nearest training problems."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.client.selection import Selector
from tileseer.conv import problem
from tileseer.conv.problem import DIMS, Problem
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency, schema
from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES
from tileseer.model.model import read_out_of_fold
from tileseer.model.schema import Origin
from tileseer.serving.picker import NO_CANDIDATE
from tileseer.validation import explain

NEAREST = 5
"""Measured problems that are shown."""
Rows = list[dict[str, Any]]


class Explanation(Origin):
    """Reasons of a pick."""

    problem: dict[str, int]
    supported_candidates: int
    fastest_measured: str | None
    ranking: list[dict[str, Any]]
    """Rank, candidate, score and what the model predicts of it; from a dataset its status, time and efficiency too."""
    against: str | None
    """The candidate that the lead of the pick is over; None where there is no other."""
    score_ahead: float | None = None
    contributions: list[dict[str, Any]]
    """A feature, its contribution to the lead, and its value in ``pick`` and ``other``."""
    other_features: float
    distance_percentile: float | None
    """How unlike the training problems the problem is; None where the model keeps none."""
    outside_training: list[str]
    nearest_training_problems: list[dict[str, Any]]
    """A problem, its fastest candidate, and the efficiency of a pick by a model that has not seen it."""


def explanation(
    models: Path, wanted: Problem, top: int = 5, against: str | None = None, measured: Path | None = None
) -> Explanation:
    """Reasons of the models' pick for ``wanted``.

    The pick is explained against the candidate ``against``, by default the second of the ranking. ``measured`` is a
    dataset: the ranking then has the times that it holds of this problem, and the nearest problems are its own.
    ``UserError`` where nothing supports the problem, or ``against`` is not among what does.
    """
    selector = Selector.load(models, f"{wanted.variant}_{wanted.dtype}")
    ranked = selector.rank(wanted)
    if ranked.empty:
        raise UserError(
            f"no candidate of {models} supports the problem; there is no pick to explain. What supports a problem is "
            "in docs/architecture.md, Seams"
        )
    times = None if measured is None else _of_the_same(schema.load(measured), selector, measured)
    known = int(selector.served.known(np.array([[getattr(wanted, name) for name in DIMS]]))[0])
    ranking = _ranking(ranked.head(top))
    return Explanation(
        **dict(Origin.of(selector.spec)),
        problem={name: getattr(wanted, name) for name in DIMS},
        supported_candidates=len(ranked),
        fastest_measured=None if known == NO_CANDIDATE else selector.served.candidates[known],
        ranking=ranking if times is None else _timed(ranking, wanted, times),
        **_reasons(selector, wanted, ranked, against),
        **_neighbours(selector, wanted, times),
    )


def _of_the_same(measurements: Measurements, selector: Selector, path: Path) -> Measurements:
    for field in ("operation", "arch"):
        found, wanted = getattr(measurements, field), getattr(selector.spec, field)
        if found != wanted:
            raise UserError(f"{path}: {field} is {found}, but the model is for {wanted}")
    return measurements


def _ranking(shown: pd.DataFrame) -> Rows:
    """The first candidates with the model's predictions; scores give the ratio to the pick's time."""
    best, rows = shown["score"].max(), []
    for row in shown.to_dict("records"):
        found = {name: row[name] for name in ("rank", "candidate", "score")}
        found["predicted_time_over_that_of_the_pick"] = round(float(np.exp(best - row["score"])), 4)
        found["predicted_efficiency"] = round(row["predicted_efficiency"], 4)
        rows.append(found)
    return rows


def _timed(ranking: Rows, wanted: Problem, times: Measurements) -> Rows:
    """The ranking with the measurement of each candidate; None where the dataset has none."""
    here = np.flatnonzero((times.problems["problem_key"] == wanted.key).to_numpy()[times.problem])
    names = times.candidates["candidate"].to_numpy()[times.candidate[here]]
    pairs = dict(zip(names.tolist(), here.tolist(), strict=True))
    achieved = efficiency.by_row(times)
    rows = []
    for row in ranking:
        status, ms, share = None, None, None
        if (pair := pairs.get(row["candidate"])) is not None:
            ms = None if np.isnan(times.latency_ms[pair]) else float(times.latency_ms[pair])
            status, share = STATUSES[times.status[pair]], round(100 * float(achieved[pair]), 4)
        rows.append(row | {"measured_status": status, "measured_ms": ms, "measured_efficiency": share})
    return rows


def _reasons(selector: Selector, wanted: Problem, ranked: pd.DataFrame, against: str | None) -> dict[str, Any]:
    """Contributions of features to the lead of the first candidate over another one; none if it is the only one."""
    if against is None and len(ranked) == 1:
        return {"against": None, "contributions": [], "other_features": 0.0}
    name = against or str(ranked["candidate"].iloc[1])
    if name not in set(ranked["candidate"]):
        raise UserError(
            f"--against {name!r} is not among the {len(ranked)} candidates that support the problem; a candidate is a "
            "kernel's name, with @splitkN behind it for a split-K of N"
        )
    pool = pd.Index(selector.pool["candidate"])
    pick, other = (np.array([pool.get_loc(one)]) for one in (ranked["candidate"].iloc[0], name))
    (found,) = explain.contributions(selector, problem.frame([wanted]), selector.pool, pick, other)
    score = ranked.set_index("candidate")["score"]
    ahead = float(score.iloc[0] - score[name])
    return {
        "against": name,
        "score_ahead": round(ahead, 6),
        "contributions": [
            {"feature": c.feature, "contribution": c.contribution, "pick": c.of_pick, "other": c.of_best} for c in found
        ],
        "other_features": round(ahead - sum(c.contribution for c in found), 6),
    }


def _neighbours(selector: Selector, wanted: Problem, times: Measurements | None) -> dict[str, Any]:
    training = _training(selector) if times is None else times.problems[times.problems["split"] == "train"]
    if training.empty:
        return {"distance_percentile": None, "outside_training": [], "nearest_training_problems": []}
    training = training.reset_index(drop=True)
    novelty = explain.Novelty(training, problem.frame([wanted]), selector.spec.feature_set, selector.hardware)
    picked = read_out_of_fold(selector.folder).set_index("problem_key")["efficiency"]
    rows = []
    for row in np.argsort(novelty.away[0], kind="stable")[:NEAREST]:
        like = training.iloc[row]
        found = picked.get(like["problem_key"])
        rows.append({
            "problem": {name: int(like[name]) for name in DIMS},
            "fastest": str(like["fastest"]) if "fastest" in training else None,
            "out_of_fold_efficiency": None if found is None else round(100 * float(found), 4),
        })  # fmt: skip
    return {
        "distance_percentile": round(float(novelty.percentile[0]), 1),
        "outside_training": novelty.outside(0),
        "nearest_training_problems": rows,
    }


def _training(selector: Selector) -> pd.DataFrame:
    """The training problems that a model directory keeps, with the ``fastest`` candidate of each."""
    variant, _, dtype = selector.spec.operation.rpartition("_")
    table = problem.frame(problem.of_rows(variant, dtype, selector.known[list(DIMS)].to_numpy()))
    table = table.assign(fastest=selector.known["candidate"].to_numpy())
    return table[table["problem_key"].isin(read_out_of_fold(selector.folder)["problem_key"])]
