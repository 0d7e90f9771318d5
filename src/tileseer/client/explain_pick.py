"""Explanation of a pick: the ranking, what speaks for its first candidate, and the nearest training problems."""

from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.client.selection import NO_CANDIDATE, Selector
from tileseer.conv import problem
from tileseer.conv.problem import DIMS, Problem
from tileseer.core import parquet
from tileseer.core.documents import Document
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency, schema
from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES
from tileseer.model import model_files
from tileseer.model.model import OFFSET
from tileseer.model.schema import Origin
from tileseer.validation import explain

NEAREST = 5
"""Measured problems that are shown."""


class Ranked(Document):
    """A candidate and what the model predicts of it; a model of relative efficiency predicts no time."""

    rank: int
    candidate: str
    score: float
    predicted_time_over_that_of_the_pick: float
    predicted_efficiency: float | None = None
    predicted_ms: float | None = None


class Timed(Ranked):
    """A ranked candidate with its measurement; None where the dataset has none."""

    measured_status: str | None
    measured_ms: float | None
    measured_efficiency: float | None


class Contribution(Document):
    """A feature that speaks for the pick (positive) or against it, and its value in both candidates."""

    feature: str
    contribution: float
    pick: float
    other: float


class Reasons(Document):
    """The lead of the pick over the candidate ``against``, by feature; None where there is no other candidate."""

    against: str | None
    score_ahead: float | None = None
    contributions: list[Contribution]
    other_features: float
    own_offset: float


class Neighbour(Document):
    """A training problem, its fastest candidate, and the efficiency of a pick by a model that has not seen it."""

    problem: dict[str, int]
    fastest: str | None
    out_of_fold_efficiency: float | None


class Neighbours(Document):
    """The training problems most like the problem, and how unlike they are; nothing where the model keeps none."""

    distance_percentile: float | None
    outside_training: list[str]
    nearest_training_problems: list[Neighbour]


class Explanation(Document):
    """Reasons of a pick."""

    origin: Origin
    problem: dict[str, int]
    supported_candidates: int
    fastest_measured: str | None
    ranking: list[Timed] | list[Ranked]
    reasons: Reasons
    neighbours: Neighbours

    def record(self) -> dict[str, object]:
        """The explanation as one table of JSON values."""
        found = self.model_dump()
        return found.pop("origin") | found | found.pop("reasons") | found.pop("neighbours")


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
    known = selector.known_row(wanted)
    ranking = _ranking(selector, wanted, ranked.head(top))
    return Explanation(
        origin=Origin.of(selector.spec),
        problem={name: getattr(wanted, name) for name in DIMS},
        supported_candidates=len(ranked),
        fastest_measured=None if known == NO_CANDIDATE else str(selector.pool["candidate"].iloc[known]),
        ranking=ranking if times is None else _timed(ranking, wanted, times),
        reasons=_reasons(selector, wanted, ranked, against),
        neighbours=_neighbours(selector, wanted, times),
    )


def _of_the_same(measurements: Measurements, selector: Selector, path: Path) -> Measurements:
    for field in ("operation", "arch"):
        found, wanted = getattr(measurements, field), getattr(selector.spec, field)
        if found != wanted:
            raise UserError(f"{path}: {field} is {found}, but the model is for {wanted}")
    return measurements


def _ranking(selector: Selector, wanted: Problem, shown: pd.DataFrame) -> list[Ranked]:
    """The first candidates with the model's predictions; every target gives the ratio to the pick's time."""
    best, target = shown["score"].max(), selector.spec.target
    return [
        Ranked(
            rank=row["rank"],
            candidate=row["candidate"],
            score=row["score"],
            predicted_time_over_that_of_the_pick=round(float(np.exp(best - row["score"])), 4),
            predicted_efficiency=round(row["predicted_efficiency"], 4) if "predicted_efficiency" in row else None,
            predicted_ms=float(wanted.flop / np.exp(row["score"]) * 1e-9) if target == "log_tflops" else None,
        )
        for row in shown.to_dict("records")
    ]


def _timed(ranking: list[Ranked], wanted: Problem, times: Measurements) -> list[Timed]:
    here = np.flatnonzero((times.problems["problem_key"] == wanted.key).to_numpy()[times.problem])
    names = times.candidates["candidate"].to_numpy()[times.candidate[here]]
    pairs = dict(zip(names.tolist(), here.tolist(), strict=True))
    achieved = efficiency.by_row(times)
    found = []
    for row in ranking:
        pair = pairs.get(row.candidate)
        measured: tuple[str | None, float | None, float | None] = (None, None, None)
        if pair is not None:
            ms = None if np.isnan(times.latency_ms[pair]) else float(times.latency_ms[pair])
            measured = STATUSES[times.status[pair]], ms, round(100 * float(achieved[pair]), 4)
        status, ms, share = measured
        found.append(Timed(**row.model_dump(), measured_status=status, measured_ms=ms, measured_efficiency=share))
    return found


def _reasons(selector: Selector, wanted: Problem, ranked: pd.DataFrame, against: str | None) -> Reasons:
    """Contributions of features to the lead of the first candidate over another one; none if it is the only one."""
    if against is None and len(ranked) == 1:
        return Reasons(against=None, contributions=[], other_features=0.0, own_offset=0.0)
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
    return Reasons(
        against=name,
        score_ahead=round(ahead, 6),
        contributions=[
            Contribution(feature=c.feature, contribution=c.contribution, pick=c.of_pick, other=c.of_best) for c in found
        ],
        other_features=round(ahead - own - sum(c.contribution for c in found), 6),
        own_offset=round(own, 6),
    )


def _neighbours(selector: Selector, wanted: Problem, times: Measurements | None) -> Neighbours:
    training = _training(selector) if times is None else times.problems[times.problems["split"] == "train"]
    if training.empty:
        return Neighbours(distance_percentile=None, outside_training=[], nearest_training_problems=[])
    training = training.reset_index(drop=True)
    novelty = explain.Novelty(training, problem.frame([wanted]), selector.spec.feature_set, selector.hardware)
    picked = parquet.read(selector.folder / model_files.OUT_OF_FOLD).to_pandas()
    efficiencies = dict(zip(picked["problem_key"], picked["efficiency"], strict=True))
    rows = []
    for row in novelty.most_like(0, NEAREST):
        like = training.iloc[row]
        found = efficiencies.get(like["problem_key"])
        rows.append(
            Neighbour(
                problem={name: int(like[name]) for name in DIMS},
                fastest=str(like["fastest"]) if "fastest" in training else None,
                out_of_fold_efficiency=None if found is None else round(100 * float(found), 4),
            )
        )
    return Neighbours(
        distance_percentile=round(float(novelty.percentile[0]), 1),
        outside_training=novelty.outside(0),
        nearest_training_problems=rows,
    )


def _training(selector: Selector) -> pd.DataFrame:
    """The training problems that a model directory keeps, with the ``fastest`` candidate of each."""
    variant, _, dtype = selector.spec.operation.rpartition("_")
    dims = selector.known[list(DIMS)].to_dict("records")
    table = problem.frame([Problem.from_dims(variant, dtype, **{str(n): int(v) for n, v in d.items()}) for d in dims])
    table = table.assign(fastest=selector.known["candidate"].to_numpy())
    trained = parquet.read(selector.folder / model_files.OUT_OF_FOLD, columns=["problem_key"])
    return table[table["problem_key"].isin(trained["problem_key"].to_pylist())]
