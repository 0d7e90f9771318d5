"""Why a model picks a kernel for a problem: the ranking, what speaks for the first, and what it has learnt nearby."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.client.selection import NO_CANDIDATE, Selector
from tileseer.conv import problem
from tileseer.conv.problem import DIMS, Problem
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.core.progress import table_lines
from tileseer.dataset import efficiency, schema
from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES
from tileseer.model import model_files
from tileseer.model.model import OFFSET
from tileseer.validation import explain

NEAREST = 5
"""Measured problems that are shown."""
_USUAL = asdict(Problem.from_dims("forward", "bf16", N=1))


def explanation(
    models: Path, wanted: Problem, top: int = 5, against: str | None = None, measured: Path | None = None
) -> dict[str, Any]:
    """Return why the models in a directory pick what they pick for ``wanted``, as values that JSON has.

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
    """Return the first candidates with what the model predicts and, where it was timed, what was measured.

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
    """Return what speaks for the first of the ranking against another candidate; nothing where it is the only one."""
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
    """Return the training problems most like ``wanted``, and how near they are; nothing where the model keeps none."""
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
    """Return the training problems that a model directory keeps, with the ``fastest`` candidate of each."""
    variant, _, dtype = selector.spec.operation.rpartition("_")
    dims = selector.known[list(DIMS)].to_dict("records")
    table = problem.frame([Problem.from_dims(variant, dtype, **{str(n): int(v) for n, v in d.items()}) for d in dims])
    table = table.assign(fastest=selector.known["candidate"].to_numpy())
    trained = parquet.read(selector.folder / model_files.OUT_OF_FOLD, columns=["problem_key"])
    return table[table["problem_key"].isin(trained["problem_key"].to_pylist())]


_HEADS = {
    "predicted_time_over_that_of_the_pick": "time/pick",
    "predicted_efficiency": "efficiency, %",
    "predicted_ms": "predicted, ms",
    "measured_status": "measured",
    "measured_ms": "ms",
    "measured_efficiency": "of the best, %",
}
"""What the columns of the ranking are called on a terminal."""


def lines(found: dict[str, Any]) -> list[str]:
    """Return an ``explanation`` as text for a terminal."""
    pick = found["ranking"][0]
    said = [
        f"{found['operation']} on {found['arch']} ({found['device']}), device kind: {found['device_kind']}",
        f"problem: {_dims(found['problem'])}",
        f"pick: {pick['candidate']}, first of {found['supported_candidates']} candidates that can run it",
    ]
    if found["fastest_measured"]:
        said.append(f"fastest measured on exactly this problem ({found['device_kind']}): {found['fastest_measured']}")
    columns = [name for name in pick if name != "candidate"] + ["candidate"]
    heads = [_HEADS.get(name, name.replace("_", " ")) for name in columns]
    said += ["", *table_lines(heads, [[_cell(row[name]) for name in columns] for row in found["ranking"]])]
    return [*said, "", *_reason_lines(found), "", *_nearest_lines(found)]


def _reason_lines(found: dict[str, Any]) -> list[str]:
    if found["against"] is None:
        return ["there is no other candidate: nothing to explain it against"]
    said = [
        f"ahead of {found['against']} by {found['score_ahead']:.4f} in score (e to that is the ratio of predicted "
        "times); of that, positive for the pick:"
    ]
    rows = [
        [f"{c['contribution']:+.4f}", c["feature"], f"{c['pick']:g}", f"{c['other']:g}"] for c in found["contributions"]
    ]
    rows.append([f"{found['other_features']:+.4f}", "all other features", "", ""])
    rows.append([f"{found['own_offset']:+.4f}", "what the candidates' own offsets differ by", "", ""])
    return said + table_lines(["points", "feature", "of the pick", "of the other"], rows)


def _nearest_lines(found: dict[str, Any]) -> list[str]:
    if found["distance_percentile"] is None:
        return ["training problems: not kept with this model; give --dataset"]
    said = [
        f"farther from the training problems than {found['distance_percentile']:g} % of these are from one another"
        + (": " + "; ".join(found["outside_training"]) if found["outside_training"] else "")
    ]
    rows = [
        [_cell(row["out_of_fold_efficiency"]), _dims(row["problem"]), row["fastest"] or "-"]
        for row in found["nearest_training_problems"]
    ]
    return said + table_lines(["out of fold, %", "nearest training problem", "fastest there"], rows)


def _dims(dims: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in dims.items() if name in "NCK" or value != _USUAL[name])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
