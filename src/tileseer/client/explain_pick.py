"""Explanation of a pick: the ranking, what speaks for its first candidate, and the nearest training problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.client.selection import NO_CANDIDATE, Selector
from tileseer.conv import problem
from tileseer.conv.problem import DIMS, Problem
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency, schema
from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES
from tileseer.model import model_files
from tileseer.model.model import OFFSET
from tileseer.validation import explain

NEAREST = 5
"""Measured problems that are shown."""


def explanation(
    models: Path, wanted: Problem, top: int = 5, against: str | None = None, measured: Path | None = None
) -> dict[str, Any]:
    """Reasons of the models' pick for ``wanted``, as values that JSON has.

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
    known = selector.known_row(wanted)
    return {
        **{name: getattr(selector.spec, name) for name in ("operation", "arch", "device", "device_kind")},
        "problem": {name: getattr(wanted, name) for name in DIMS},
        "supported_candidates": len(ranked),
        "fastest_measured": None if known == NO_CANDIDATE else str(selector.pool["candidate"].iloc[known]),
        "ranking": _ranking(selector, wanted, ranked.head(top), times),
        **_reasons(selector, wanted, ranked, against),
        **_nearest(selector, wanted, times),
    }


def _of_the_same(measurements: Measurements, selector: Selector, path: Path) -> Measurements:
    for field in ("operation", "arch"):
        found, wanted = getattr(measurements, field), getattr(selector.spec, field)
        if found != wanted:
            raise UserError(f"{path}: {field} is {found}, but the model is for {wanted}")
    return measurements


def _ranking(
    selector: Selector, wanted: Problem, shown: pd.DataFrame, times: Measurements | None
) -> list[dict[str, Any]]:
    """The first candidates with what the model predicts and, where it was timed, what was measured.

    A model of relative efficiency predicts no time; every target gives the ratio to the pick's.
    """
    slower = np.exp(shown["score"].max() - shown["score"].to_numpy())
    rows: list[dict[Any, Any]] = [*shown[["rank", "candidate", "score"]].to_dict("records")]
    flop = wanted.flop if selector.spec.target == "log_tflops" else None
    for row, ratio in zip(rows, slower, strict=True):
        row["predicted_time_over_that_of_the_pick"] = round(float(ratio), 4)
        if "predicted_efficiency" in shown:
            row["predicted_efficiency"] = round(float(shown["predicted_efficiency"].iloc[int(row["rank"]) - 1]), 4)
        if flop is not None:
            row["predicted_ms"] = float(flop / np.exp(row["score"]) * 1e-9)
    if times is not None:
        _add_measured(rows, wanted, times)
    return rows


def _add_measured(rows: list[dict[str, Any]], wanted: Problem, times: Measurements) -> None:
    here = np.flatnonzero((times.problems["problem_key"] == wanted.key).to_numpy()[times.problem])
    names = times.candidates["candidate"].to_numpy()[times.candidate[here]]
    pairs = dict(zip(names.tolist(), here.tolist(), strict=True))
    achieved = efficiency.by_row(times)
    for row in rows:
        pair = pairs.get(row["candidate"])
        row["measured_status"] = None if pair is None else STATUSES[times.status[pair]]
        row["measured_ms"] = None if pair is None else float(times.latency_ms[pair])
        row["measured_efficiency"] = None if pair is None else round(100 * float(achieved[pair]), 4)


def _reasons(selector: Selector, wanted: Problem, ranked: pd.DataFrame, against: str | None) -> dict[str, Any]:
    """Contributions of features to the lead of the first candidate over another one; none if it is the only one."""
    if against is None and len(ranked) == 1:
        return {"against": None, "contributions": [], "other_features": 0.0, "own_offset": 0.0}
    name = against or str(ranked["candidate"].iloc[1])
    if name not in set(ranked["candidate"]):
        raise UserError(
            f"--against {name!r} is not among the {len(ranked)} candidates that support the problem; a candidate is a "
            "kernel's name, with @splitkN behind it for a split-K of N"
        )
    pool = pd.Index(selector.pool["candidate"])
    pick, other = (np.array([pool.get_loc(one)]) for one in (ranked["candidate"].iloc[0], name))
    (found,) = explain.contributions(selector, problem.frame([wanted]), selector.pool, pick, other)
    offset = selector.pool[OFFSET].to_numpy()
    own = float(offset[pick[0]] - offset[other[0]])
    score = ranked.set_index("candidate")["score"]
    ahead = float(score.iloc[0] - score[name])
    return {
        "against": name,
        "score_ahead": round(ahead, 6),
        "contributions": [
            {"feature": c.feature, "contribution": c.contribution, "pick": c.of_pick, "other": c.of_best} for c in found
        ],
        "other_features": round(ahead - own - sum(c.contribution for c in found), 6),
        "own_offset": round(own, 6),
    }


def _nearest(selector: Selector, wanted: Problem, times: Measurements | None) -> dict[str, Any]:
    """The training problems most like ``wanted``, and how near they are; nothing where the model keeps none."""
    training = _training(selector) if times is None else times.problems[times.problems["split"] == "train"]
    if training.empty:
        return {"distance_percentile": None, "outside_training": [], "nearest_training_problems": []}
    training = training.reset_index(drop=True)
    novelty = explain.Novelty(training, problem.frame([wanted]), selector.spec.feature_set, selector.hardware)
    picked = parquet.read(selector.folder / model_files.OUT_OF_FOLD).to_pandas()
    efficiencies = dict(zip(picked["problem_key"], picked["efficiency"], strict=True))
    rows = []
    for row in novelty.most_like(0, NEAREST):
        like = training.iloc[row]
        found = efficiencies.get(like["problem_key"])
        rows.append(
            {
                "problem": {name: int(like[name]) for name in DIMS},
                "fastest": str(like["fastest"]) if "fastest" in training else None,
                "out_of_fold_efficiency": None if found is None else round(100 * float(found), 4),
            }
        )
    return {
        "distance_percentile": round(float(novelty.percentile[0]), 1),
        "outside_training": novelty.outside(0),
        "nearest_training_problems": rows,
    }


def _training(selector: Selector) -> pd.DataFrame:
    """The training problems that a model directory keeps, with the ``fastest`` candidate of each."""
    variant, _, dtype = selector.spec.operation.rpartition("_")
    dims = selector.known[list(DIMS)].to_dict("records")
    table = problem.frame([Problem.from_dims(variant, dtype, **{str(n): int(v) for n, v in d.items()}) for d in dims])
    table = table.assign(fastest=selector.known["candidate"].to_numpy())
    trained = parquet.read(selector.folder / model_files.OUT_OF_FOLD, columns=["problem_key"])
    return table[table["problem_key"].isin(trained["problem_key"].to_pylist())]
