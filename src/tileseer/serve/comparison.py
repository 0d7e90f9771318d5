"""What changed between two datasets of one operation, or between the picks of two models.

A change of a pair is significant when it is larger than the noise of both measurements explains; of the many pairs
that are looked at, the share of false alarms among those called significant is held down (Benjamini and Hochberg,
1995). Gains are positive: B is faster.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tileseer.core.errors import UserError
from tileseer.dataset import provenance, schema
from tileseer.dataset.dataset import Dataset
from tileseer.kernels import candidates
from tileseer.learn import efficiency, model_files, ranking
from tileseer.learn.model import Model
from tileseer.learn.model_schema import FeatureSpec, Origin
from tileseer.problems.problem import DIMS
from tileseer.problems.problem_csv import DEFAULTS

FALSE_DISCOVERIES = 0.05
"""Expected share of false alarms among the changes that are called significant."""
_COLUMNS = ("kernel", "split_k", "problem_key", "status", "latency_ms", "samples", "latency_cv", "network", "layer")


class Side(Origin):
    """One of the two things that are compared."""

    path: str


@dataclass(frozen=True)
class Comparison:
    """What ``tileseer compare`` prints; every table is a list of records, best known order."""

    what: str
    """``datasets`` or ``models``."""
    a: Side
    b: Side
    figures: dict[str, Any]
    problems: pd.DataFrame
    """One row a problem that both have, the largest loss first."""
    candidates: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row a candidate that both measured, the largest loss first; empty for models."""
    statuses: pd.DataFrame = field(default_factory=pd.DataFrame)
    """How many pairs went from one status to another; empty for models."""

    @property
    def is_slower(self) -> bool:
        """Whether B is significantly slower than A."""
        of_models = self.figures.get("mean_gain_interval_points")
        _, high = of_models or self.figures["gain_of_the_best_percent"]["interval"]
        return bool(high < 0)

    @property
    def differs(self) -> bool:
        """Whether there is more between A and B than noise."""
        if self.what == "models":
            return bool(self.figures["picks_changed"])
        low, high = self.figures["gain_of_the_best_percent"]["interval"]
        only = self.figures["pairs_only_in_a"] + self.figures["pairs_only_in_b"]
        return bool(only or len(self.statuses) or not low <= 0 <= high)

    def record(self) -> dict[str, Any]:
        """The comparison as values that JSON has."""
        tables = {name: getattr(self, name) for name in ("problems", "candidates", "statuses")}
        return {
            "what": self.what,
            "a": self.a.model_dump(),
            "b": self.b.model_dump(),
            "figures": self.figures,
            **{name: json.loads(table.to_json(orient="records")) for name, table in tables.items()},
        }


def compare_datasets(path_a: Path, path_b: Path) -> Comparison:
    """Compare the times of the pairs that two datasets of one operation share."""
    (side_a, rows_a), (side_b, rows_b) = _read_pairs(path_a), _read_pairs(path_b)
    if side_a.operation != side_b.operation:
        raise UserError(
            f"{path_a} is of {side_a.operation}, {path_b} of {side_b.operation}: compare datasets of one operation"
        )
    both = rows_a.merge(rows_b, on=["problem_key", "candidate"], suffixes=("_a", "_b"))
    if both.empty:
        raise UserError(f"{path_a} and {path_b} have no pair of the same candidate and problem")
    timed = both[(both["status_a"] == "ok") & (both["status_b"] == "ok")].copy()
    timed["gain"] = np.log(timed["latency_ms_a"] / timed["latency_ms_b"])
    significant = _significant(timed["gain"], np.hypot(timed["error_a"], timed["error_b"]))
    timed["faster"], timed["slower"] = significant & (timed["gain"] > 0), significant & (timed["gain"] < 0)
    problems = _best_by_problem(timed)
    unknown = (timed["error_a"] + timed["error_b"]).isna()
    figures = {
        "problems": len(problems),
        "problems_won": int((problems["significant"] & (problems["gain_percent"] > 0)).sum()),
        "problems_lost": int((problems["significant"] & (problems["gain_percent"] < 0)).sum()),
        "best_kernel_changed": int((problems["best_a"] != problems["best_b"]).sum()),
        "gain_of_the_best_percent": _geometric(problems["gain_percent"]),
        "pairs": len(timed),
        "pairs_faster": int(timed["faster"].sum()),
        "pairs_slower": int(timed["slower"].sum()),
        "pairs_without_known_noise": int(unknown.sum()),
        "gain_of_all_pairs_percent": _percent(timed["gain"].mean()) if len(timed) else None,
        "pairs_only_in_a": len(rows_a) - len(both),
        "pairs_only_in_b": len(rows_b) - len(both),
    }
    return Comparison("datasets", side_a, side_b, figures, problems, _by_candidate(timed), _status_changes(both))


def compare_models(path_a: Path, path_b: Path, measured: Path) -> Comparison:
    """Compare the picks of two model directories on the validation problems of a dataset that timed both."""
    measurements = Dataset.read(measured)
    operation = measurements.operation
    models = [Model.read(model_files.operation_folder(path, operation)) for path in (path_a, path_b)]
    scored = [ranking.rank_held_out(model, measurements) for model in models]
    chosen, (got_a, got_b) = scored[0].problems, (one.picked for one in scored)
    names = measurements.candidates["candidate"].to_numpy()
    pick_a, pick_b = (np.where(one.pool.any(axis=1), names[one.picks], "") for one in scored)
    difference = got_b - got_a
    problems = chosen[["network", "layer", "problem_key"]].assign(
        problem=[_dims_text(row) for row in chosen[list(DIMS)].itertuples(index=False)],
        efficiency_a=np.round(100 * got_a, 4),
        efficiency_b=np.round(100 * got_b, 4),
        gain_points=np.round(100 * difference, 4),
        pick_a=pick_a,
        pick_b=pick_b,
    )
    low, high = efficiency.interval_of_mean(difference)
    figures = {
        "problems": len(problems),
        "picks_changed": int((problems["pick_a"] != problems["pick_b"]).sum()),
        "problems_won": int((difference > 0).sum()),
        "problems_lost": int((difference < 0).sum()),
        "efficiency_a": efficiency.summary(got_a),
        "efficiency_b": efficiency.summary(got_b),
        "mean_gain_points": efficiency.percent(difference.mean()),
        "mean_gain_interval_points": [low, high],
        "significant": not low <= 0 <= high,
        "measured_on": measurements.device,
        "device_kind": measurements.device_kind,
    }
    problems = problems.sort_values(["gain_points", "problem_key"], kind="stable", ignore_index=True)
    side_a, side_b = (_side(path, model.spec) for path, model in zip((path_a, path_b), models, strict=True))
    return Comparison("models", side_a, side_b, figures, problems)


def _read_pairs(path: Path) -> tuple[Side, pd.DataFrame]:
    """A dataset's pairs: ``candidate``, ``problem_key``, ``status``, ``latency_ms``, relative ``error``."""
    table = schema.read_rows(path)
    made = provenance.provenance_of(table, path)
    # What was never run can not have become faster or slower.
    table = table.filter(pc.not_equal(table["status"].cast("string"), "unsupported"))
    rows = table.select([*_COLUMNS, *DIMS]).to_pandas()
    rows["candidate"] = list(map(candidates.label, rows["kernel"], rows["split_k"]))
    samples = rows["samples"].to_numpy(np.float64)
    rows["error"] = np.where(samples > 1, rows["latency_cv"] / np.sqrt(np.maximum(samples, 1)), np.nan)
    distinct = rows.drop_duplicates("problem_key")
    texts = map(_dims_text, distinct[list(DIMS)].itertuples(index=False))
    rows["problem"] = rows["problem_key"].map(dict(zip(distinct["problem_key"], texts, strict=True)))
    rows = rows.astype(dict.fromkeys(("problem_key", "status", "network", "layer"), str))
    kept = ["candidate", "problem_key", "problem", "network", "layer", "status", "latency_ms", "error"]
    return _side(path, made), rows[kept]


def _side(path: Path, made: FeatureSpec | provenance.DatasetProvenance) -> Side:
    return Side(path=str(path), **dict(Origin.of(made)))


def _significant(gain: pd.Series | np.ndarray, error: pd.Series | np.ndarray) -> np.ndarray:
    """Which gains (log of a ratio) their standard errors do not explain, bool [n]; unknown noise never.

    Benjamini and Hochberg (1995): of these, at most ``FALSE_DISCOVERIES`` are expected to be noise.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.abs(np.asarray(gain)) / np.asarray(error)
    two_sided = np.array([math.erfc(one / math.sqrt(2)) if np.isfinite(one) else np.nan for one in distance])
    sorted_values = np.sort(two_sided[np.isfinite(two_sided)])
    bounds = FALSE_DISCOVERIES * np.arange(1, len(sorted_values) + 1) / max(len(sorted_values), 1)
    below = sorted_values[sorted_values <= bounds]
    return two_sided <= below[-1] if len(below) else np.zeros(len(two_sided), bool)


def _best_by_problem(timed: pd.DataFrame) -> pd.DataFrame:
    """The best time of each problem on both sides, and what keeping the best kernel of A costs on B."""
    if timed.empty:
        raise UserError("no pair has a time on both sides")
    groups = timed.groupby("problem_key", sort=True)
    a, b = (timed.loc[groups[f"latency_ms_{side}"].idxmin()].reset_index(drop=True) for side in "ab")
    gain = np.log(a["latency_ms_a"] / b["latency_ms_b"])
    table = pd.DataFrame(
        {
            "problem": a["problem_a"],
            "network": a["network_a"],
            "layer": a["layer_a"],
            "gain_percent": [_percent(value) for value in gain],
            "significant": _significant(gain, np.hypot(a["error_a"], b["error_b"])),
            "best_a": a["candidate"],
            "best_b": b["candidate"],
            "kept_pick_efficiency_percent": (100 * b["latency_ms_b"] / a["latency_ms_b"]).round(4),
            "problem_key": a["problem_key"],
        }
    )
    return table.sort_values(["gain_percent", "problem_key"], kind="stable", ignore_index=True)


def _by_candidate(timed: pd.DataFrame) -> pd.DataFrame:
    groups = timed.groupby("candidate", sort=True, as_index=False)
    columns = {"pairs": ("gain", "size"), "gain_percent": ("gain", "mean")}
    table = groups.agg(**columns, faster=("faster", "sum"), slower=("slower", "sum"))
    table["gain_percent"] = [_percent(value) for value in table["gain_percent"]]
    return table.sort_values(["gain_percent", "candidate"], kind="stable", ignore_index=True)


def _status_changes(both: pd.DataFrame) -> pd.DataFrame:
    changed = both[both["status_a"] != both["status_b"]]
    counts = changed.groupby(["status_a", "status_b"], sort=True).size()
    return counts.rename("pairs").reset_index()


def _geometric(gain_percent: pd.Series) -> dict[str, Any]:
    """The geometric mean of speed ratios and its interval over problems, as percent."""
    logs = np.log1p(gain_percent.to_numpy() / 100)
    low, high = (100 * np.expm1(value / 100) for value in efficiency.interval_of_mean(logs))
    return {"mean": _percent(float(logs.mean())), "interval": [round(low, 4), round(high, 4)]}


def _percent(log_ratio: float) -> float:
    return round(100 * float(np.expm1(log_ratio)), 4)


def _dims_text(row: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(DIMS, row, strict=True) if value != DEFAULTS.get(name))
