"""Why a model picks a candidate: the ranking, what speaks for its first candidate, the nearest training problems."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError
from tileseer.dataset.dataset import Dataset
from tileseer.kernels.registry import of_arch
from tileseer.kernels.support import SUPPORT, check_support
from tileseer.learn import explain, model_files
from tileseer.learn.model import Model, read_out_of_fold, read_table
from tileseer.learn.model_schema import Origin
from tileseer.measure.device import STATUSES
from tileseer.problems import problem as problem_columns
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve import serving_files
from tileseer.serve.selector import Ranked, Selector

NEAREST = 5
"""Measured problems that are shown."""


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


def explain_pick(
    models: Path, problem: Problem, top: int = 5, against: str | None = None, dataset: Path | None = None
) -> Explanation:
    """Reasons of the models' pick for ``problem``.

    The pick is explained against the candidate ``against``, by default the second of the ranking. With a dataset, the
    ranking has the times that it holds of this problem, and the nearest problems are its own. ``UserError`` where
    nothing supports the problem, or ``against`` is not among what does.
    """
    selector = Selector.read(models, f"{problem.variant}_{problem.dtype}")
    ranked, model = selector.rank(problem), Model.read(selector.folder)
    if not ranked:
        why = "; ".join(f"{count} candidates: {reason}" for reason, count in refusals(model, problem).items())
        raise UserError(f"no candidate of {models} supports the problem: {why}")
    measurements = None if dataset is None else _read_dataset(dataset, model)
    ranking = [_shown(row, ranked[0]["score"]) for row in ranked[:top]]
    return Explanation(
        **dict(Origin.of(model.spec)),
        problem={name: getattr(problem, name) for name in DIMS},
        supported_candidates=len(ranked),
        fastest_measured=selector.fastest_measured(problem),
        ranking=ranking if measurements is None else _with_times(ranking, problem, measurements),
        **_reasons(model, problem, ranked, against),
        **_neighbours(model, selector.folder, problem, measurements),
    )


def refusals(model: Model, problem: Problem) -> dict[str, int]:
    """How many candidates of a model each support rule refuses, by its reason, the most first."""
    rules = SUPPORT[of_arch(model.spec.arch).name].rules
    verdicts = check_support(problem_columns.problem_frame([problem]), model.pool, model.spec.variant, model.hardware)[
        0
    ]
    return dict(Counter(rules[verdict - 1].reason for verdict in verdicts.tolist() if verdict).most_common())


def _read_dataset(path: Path, model: Model) -> Dataset:
    measurements = Dataset.read(path)
    for field in ("operation", "arch"):
        value, expected = getattr(measurements, field), getattr(model.spec, field)
        if value != expected:
            raise UserError(f"{path}: {field} is {value}, but the model is for {expected}")
    return measurements


def _shown(row: Ranked, best: float) -> dict[str, Any]:
    """A candidate with the model's predictions; scores give the ratio to the pick's time."""
    return {
        **{name: row[name] for name in ("rank", "candidate", "score")},
        "predicted_time_over_that_of_the_pick": round(float(np.exp(best - row["score"])), 4),
        "predicted_efficiency": round(row["predicted_efficiency"], 4),
    }


def _with_times(ranking: list[dict[str, Any]], problem: Problem, times: Dataset) -> list[dict[str, Any]]:
    """The ranking with the measurement of each candidate; None where the dataset has none."""
    here = np.flatnonzero((times.problems["problem_key"] == problem.key).to_numpy()[times.problem])
    names = times.candidates["candidate"].to_numpy()[times.candidate[here]]
    pairs = dict(zip(names.tolist(), here.tolist(), strict=True))
    achieved = times.efficiency
    rows = []
    for row in ranking:
        status, ms, share = None, None, None
        if (pair := pairs.get(row["candidate"])) is not None:
            ms = None if np.isnan(times.latency_ms[pair]) else float(times.latency_ms[pair])
            status, share = STATUSES[times.status[pair]], round(100 * float(achieved[pair]), 4)
        rows.append(row | {"measured_status": status, "measured_ms": ms, "measured_efficiency": share})
    return rows


def _reasons(model: Model, problem: Problem, ranked: list[Ranked], against: str | None) -> dict[str, Any]:
    """Contributions of features to the lead of the first candidate over another one; none if it is the only one."""
    if against is None and len(ranked) == 1:
        return {"against": None, "contributions": [], "other_features": 0.0}
    score = {row["candidate"]: row["score"] for row in ranked}
    name = against or ranked[1]["candidate"]
    if name not in score:
        raise UserError(
            f"--against {name!r} is not among the {len(ranked)} candidates that support the problem; a candidate is a "
            "kernel's name, with @splitkN behind it for a split-K of N"
        )
    pool = pd.Index(model.pool["candidate"])
    pick, other = (np.array([pool.get_loc(one)]) for one in (ranked[0]["candidate"], name))
    (parts,) = explain.contributions(model, problem_columns.problem_frame([problem]), model.pool, pick, other)
    ahead = ranked[0]["score"] - score[name]
    return {
        "against": name,
        "score_ahead": round(ahead, 6),
        "contributions": [
            {"feature": part.feature, "contribution": part.contribution, "pick": part.of_pick, "other": part.of_best}
            for part in parts
        ],
        "other_features": round(ahead - sum(part.contribution for part in parts), 6),
    }


def _neighbours(model: Model, folder: Path, problem: Problem, times: Dataset | None) -> dict[str, Any]:
    picked = read_out_of_fold(folder).set_index("problem_key")["efficiency"]
    if times is None:
        training = _training_problems(model, folder, picked.index)
    else:
        training = times.problems[times.problems["split"] == "train"]
    if training.empty:
        return {"distance_percentile": None, "outside_training": [], "nearest_training_problems": []}
    training = training.reset_index(drop=True)
    columns = problem_columns.problem_frame([problem])
    novelty = explain.Novelty(training, columns, model.spec.feature_set, model.hardware)
    rows = []
    for row in np.argsort(novelty.away[0], kind="stable")[:NEAREST]:
        near = training.iloc[row]
        reached = picked.get(near["problem_key"])
        rows.append(
            {
                "problem": {name: int(near[name]) for name in DIMS},
                "fastest": str(near["fastest"]) if "fastest" in training else None,
                "out_of_fold_efficiency": None if reached is None else round(100 * float(reached), 4),
            }
        )
    return {
        "distance_percentile": round(float(novelty.percentile[0]), 1),
        "outside_training": novelty.outside(0),
        "nearest_training_problems": rows,
    }


def _training_problems(model: Model, folder: Path, keys: pd.Index) -> pd.DataFrame:
    """The training problems that a model directory keeps, with the ``fastest`` candidate of each."""
    known = read_table(folder / model_files.KNOWN, serving_files.KNOWN_PROBLEMS.names)
    spec = model.spec
    table = problem_columns.problem_frame(
        problem_columns.problems_of_rows(spec.variant, spec.dtype, known[list(DIMS)].to_numpy())
    )
    table = table.assign(fastest=known["candidate"].to_numpy())
    return table[table["problem_key"].isin(keys)]
