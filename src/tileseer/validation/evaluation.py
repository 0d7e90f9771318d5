"""How well a ranking chooses on problems it has never seen.

The figure is the efficiency of the pick: its measured TFLOPS over the best measured TFLOPS of the problem. A pick
that was not measured, failed or cannot run counts 0; nothing is left out because it is inconvenient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from tileseer import families
from tileseer.conv.problem import DIMS, from_frame
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.families import learning
from tileseer.gpu.coefficients import Coefficients
from tileseer.gpu.hardware import Hardware
from tileseer.model import features, trainer
from tileseer.validation import bootstrap, end_to_end, explain, noise_floor, ties

WITHIN = 0.98
"""A pick this close to the best is as good as it: single timings do not tell them apart."""
BAD = 0.80
WORST = 10
"""Problems listed as the worst picks."""
FEW_CHANNELS = 16
PERFECT_SELECTOR = (
    "knows every true time, and which pairs fail; less than 100 because the best of many timings is lucky"
)
PERFECT_MODEL = "knows everything but what is drawn for a single pair, which no model can learn from other pairs"
LUCKIEST_SAMPLE = "the best measured candidate, against the best true time: the winner's curse"
AGAINST_TRUE_BEST = "the model's picks, against the best true time"


def validation_rows(measurements: Measurements) -> np.ndarray:
    """Return the rows of ``problems`` held out for validation, after making sure that they were held out.

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


def rank_pool(
    measurements: Measurements,
    booster: lightgbm.Booster,
    spec: dict[str, Any],
    pool: pd.DataFrame,
    hardware: Hardware,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of a published ``pool`` and what it offers, as ``evaluate`` takes them, [P, Q] each.

    Only what it offers to validation problems is scored; the rest is -inf. Measured candidates outside the pool are
    not offered; ``UserError`` when the pool has one that was not measured.
    """
    position = pd.Index(measurements.candidates["candidate"]).get_indexer(pool["candidate"])
    if (position < 0).any():
        foreign = pool["candidate"][position < 0].iloc[0]
        raise UserError(f"{measurements.operation}: the model's pool has {foreign}, which the dataset has not")
    problems = measurements.problems
    supported = learning.check(problems, pool, spec["variant"], hardware.wave_size) == 0
    held_out = (problems["split"] == "validation").to_numpy()
    problem, candidate = np.nonzero(supported & held_out[:, None])
    scores = np.full((len(problems), len(measurements.candidates)), -np.inf)
    scores[problem, position[candidate]] = trainer.predict(
        booster, spec, problems, pool, problem, candidate, hardware, threads
    )
    offered = np.zeros(scores.shape, bool)
    offered[:, position] = supported
    return scores, offered


@dataclass(frozen=True)
class Scored:
    """The R validation problems on which something ran, and how a ranking does on them."""

    rows: np.ndarray
    """Row of ``problems`` of each."""
    achieved: np.ndarray
    """float64 [R, Q], measured efficiency of every candidate, 0 where it did not run."""
    pool: np.ndarray
    """bool [R, Q], what a selector may choose."""
    picks: np.ndarray
    """int [R], the candidate that is chosen."""
    ranked: np.ndarray
    """float64 [R, Q], efficiency of the candidates in the order of the ranking."""

    @property
    def picked(self) -> np.ndarray:
        """Efficiency of the picks, float64 [R]."""
        return self.ranked[:, 0]


def score(measurements: Measurements, scores: np.ndarray, supported: np.ndarray) -> Scored:
    """Return how a ranking does on the problems with split ``validation`` on which anything ran.

    ``scores`` (float64 [P, Q], higher is better) and ``supported`` (bool [P, Q]: the CPU support rules pass and the
    candidate is published) cover every problem and candidate of ``measurements``, as a selection would see them.
    """
    rows = validation_rows(measurements)
    achieved = efficiency.grid(measurements, rows)
    solvable = achieved.max(axis=1, initial=0.0) > 0
    rows, achieved = rows[solvable], achieved[solvable]
    if not len(rows):
        raise UserError(f"{measurements.operation}: no validation problem has a measured time")
    pool = supported[rows]
    order = np.argsort(np.where(pool, -scores[rows], np.inf), axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(pool, achieved, 0.0), order, axis=1)
    return Scored(rows, achieved, pool, order[:, 0], ranked)


def evaluate(
    measurements: Measurements,
    scores: np.ndarray,
    supported: np.ndarray,
    hardware: Hardware,
    coefficients: Coefficients | None = None,
    model: tuple[lightgbm.Booster, dict[str, Any]] | None = None,
    reference: np.ndarray | None = None,
    uses: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return the validation report (docs/validation.md); percentages have four decimals.

    ``scores`` and ``supported`` are those of ``score``. ``coefficients`` are those of the simulated device, if the
    times are its; ``model`` is a booster with its spec, whose worst picks are then explained; ``reference`` are the
    scores of the reference's trainer, shaped as ``scores``. ``uses`` (columns of ``problem_table.USES``) says which
    runs of networks need which problem: with it the report has what the picks cost them.
    """
    scored = score(measurements, scores, supported)
    problems = measurements.problems.iloc[scored.rows]
    floor = _floor(measurements, scored, hardware, coefficients)
    tied = ties.with_best(scored.achieved, _errors(measurements, scored))
    training = measurements.problems[(measurements.problems["split"] == "train").to_numpy()]
    if training.empty:
        raise UserError(
            f"{measurements.operation}: the dataset has no problem with split train; the baselines are chosen on them, "
            "give the dataset that the model was trained on"
        )
    novelty = explain.Novelty(training, problems, model[1]["feature_set"] if model else "tileseer", hardware)

    def strata(labels: pd.Series, name: str = "{}") -> dict[str, Any]:
        return {name.format(label): _stratum(scored.picked, floor, part) for label, part in _parts(labels)}

    return {
        "operation": measurements.operation,
        "arch": measurements.arch,
        "device": measurements.device,
        "device_kind": measurements.device_kind,
        "n_problems": len(scored.rows),
        "n_without_measurement": len(validation_rows(measurements)) - len(scored.rows),
        "n_candidates": len(measurements.candidates),
        "mean_pool_size": round(float(scored.pool.sum(axis=1).mean()), 2),
        **_pick_metrics(scored.ranked),
        "interval": bootstrap.intervals(scored.picked),
        "interval_level": bootstrap.LEVEL,
        "noise_floor": _floor_report(scored, floor),
        "ties": ties.report(tied, scored.picks, measurements.between_runs),
        "oracle": _oracle(scored),
        "pipelines": _pipelines(measurements, scored.picks, scored.achieved),
        "by_ndim": strata(problems["ndim"], "{}d"),
        "by_layer_kind": strata(layer_kinds(problems)),
        "by_network": strata(problems["network"]),
        "by_distance_to_training": {
            name: _stratum(scored.picked, floor, part) for name, part in novelty.quarters().items() if part.any()
        },
        "baselines": _baselines(measurements, scored, floor, supported, hardware),
        **(
            {"reference_trainer": _against(measurements, scored, reference, supported)} if reference is not None else {}
        ),
        "worst": _worst(measurements, scored, novelty, model, hardware),
        "picks": _every_pick(measurements, scored, tied),
        **(_networks(measurements, scored, floor, uses) if uses is not None else {}),
    }


def _networks(
    measurements: Measurements, scored: Scored, floor: noise_floor.Floor, uses: pd.DataFrame
) -> dict[str, Any]:
    """Return what the picks cost whole runs of networks, and their efficiency by distance to the training problems."""
    problems = measurements.problems.iloc[scored.rows]
    keys = problems["problem_key"]
    gflop = np.array([problem.flop for problem in from_frame(problems)]) / 1e9
    best = efficiency.problem_best(measurements)[scored.rows]
    return {
        "end_to_end": end_to_end.of_runs(uses, keys, gflop, best, scored.picked, floor.selectors()),
        "by_distance": end_to_end.by_distance(uses, keys, lambda part: _stratum(scored.picked, floor, part)),
    }


def layer_kinds(problems: pd.DataFrame) -> pd.Series:
    """Return what kind of layer each problem is: the first that fits of depthwise, grouped, dilated, and so on."""
    p = {name: problems[name].to_numpy() for name in DIMS}
    taps = p["Z"] * p["Y"] * p["X"]
    strided = (p["stride_d"] > 1) | (p["stride_h"] > 1) | (p["stride_w"] > 1)
    kinds = {
        "depthwise": (p["G"] == p["C"]) & (p["G"] > 1),
        "grouped": p["G"] > 1,
        "dilated": (p["dilation_d"] > 1) | (p["dilation_h"] > 1) | (p["dilation_w"] > 1),
        "few channels": np.minimum(p["C"], p["K"]) < FEW_CHANNELS,
        "pointwise": (taps == 1) & ~strided,
        "strided": strided,
        "3x3": (p["Y"] == 3) & (p["X"] == 3) & (p["Z"] == 1),
    }
    return pd.Series(np.select(list(kinds.values()), list(kinds), default="other filters"), index=problems.index)


def _floor(
    measurements: Measurements, scored: Scored, hardware: Hardware, coefficients: Coefficients | None
) -> noise_floor.Floor:
    if coefficients is not None:
        problems = measurements.problems.iloc[scored.rows]
        return noise_floor.of_simulation(
            problems, measurements.candidates, scored.pool, scored.achieved, hardware, coefficients
        )
    return noise_floor.of_errors(scored.achieved, _errors(measurements, scored), measurements.between_runs)


def _errors(measurements: Measurements, scored: Scored) -> np.ndarray:
    """Return the relative standard error of each time, float64 [R, Q]; NaN where it is unknown."""
    error = np.full(len(measurements.problem), np.nan)
    if measurements.relative_error is not None:
        error = measurements.relative_error
    return efficiency.spread_out(measurements, scored.rows, error, np.nan)


def _floor_report(scored: Scored, floor: noise_floor.Floor) -> dict[str, Any]:
    """Return what selectors that know more score, and the picks against the best true time."""
    at_best = np.take_along_axis(floor.true, scored.achieved.argmax(axis=1)[:, None], axis=1)[:, 0]
    picked = np.take_along_axis(np.where(scored.pool, floor.true, 0.0), scored.picks[:, None], axis=1)[:, 0]
    meanings = {"perfect_selector": PERFECT_SELECTOR, "perfect_model": PERFECT_MODEL}
    known = {name: (meanings[name], values) for name, values in floor.selectors().items()}
    known["luckiest_sample"] = (LUCKIEST_SAMPLE, at_best)
    known["against_true_best"] = (AGAINST_TRUE_BEST, picked)
    few = {
        name: {f"efficiency_best_of_{first}": efficiency.summary(floor.selectors(first)[name]) for first in (3, 5)}
        for name in meanings
        if name in known
    }
    return {
        "basis": floor.basis,
        **{
            name: {
                "meaning": meaning,
                **_figures(values),
                "interval": bootstrap.intervals(values),
                "within_2_percent": efficiency.percent(np.mean(values >= WITHIN)),
                "top1": efficiency.percent(np.mean(values >= 1.0)),
                **few.get(name, {}),
            }
            for name, (meaning, values) in known.items()
        },
    }


def _oracle(scored: Scored) -> dict[str, Any]:
    """Return how much of what could be chosen was measured: the best of few says little."""
    ran = scored.achieved > 0
    offered = np.maximum(scored.pool.sum(axis=1), 1)
    coverage = (ran & scored.pool).sum(axis=1) / offered
    return {
        "meaning": "share of the candidates that a selector may choose that were timed with success, by problem",
        "mean_coverage": efficiency.percent(coverage.mean()),
        "least_coverage": efficiency.percent(coverage.min()),
        "outside_the_pool": int((ran.any(axis=1) & (scored.achieved.argmax(axis=1) != _best_offered(scored))).sum()),
    }


def _best_offered(scored: Scored) -> np.ndarray:
    return np.where(scored.pool, scored.achieved, -1.0).argmax(axis=1)


def _against(
    measurements: Measurements, scored: Scored, reference: np.ndarray, supported: np.ndarray
) -> dict[str, Any]:
    """Return the metrics of the reference's trainer on the same problems and pool, and how far it is behind."""
    theirs = score(measurements, reference, supported)
    ahead = scored.picked - theirs.picked
    return {
        "meaning": "97 features, log1p(TFLOPS) and the reference's hyperparameters, trained on the same rows",
        **_pick_metrics(theirs.ranked),
        "interval": bootstrap.intervals(theirs.picked),
        "ahead": {
            "meaning": "mean efficiency of our picks minus that of theirs, in points; paired over problems",
            "mean": efficiency.percent(ahead.mean()),
            "interval": bootstrap.of_mean(ahead),
        },
    }


def _pick_metrics(ranked: np.ndarray) -> dict[str, Any]:
    """Return the metrics of a ranking; ``ranked`` [R, Q] is the efficiency of each problem's candidates in order."""
    picked = ranked[:, 0]
    first = {k: ranked[:, :k].max(axis=1) for k in (1, 3, 5)}
    return {
        **_figures(picked),
        **{f"top{k}": efficiency.percent(np.mean(best >= 1.0)) for k, best in first.items()},
        "efficiency_best_of_3": efficiency.summary(first[3]),
        "efficiency_best_of_5": efficiency.summary(first[5]),
        "within_2_percent": efficiency.percent(np.mean(picked >= WITHIN)),
        "below_80_percent": efficiency.percent(np.mean(picked < BAD)),
    }


def _parts(labels: pd.Series) -> list[tuple[Any, np.ndarray]]:
    return [(label, (labels == label).to_numpy()) for label in sorted(set(labels))]


def _stratum(picked: np.ndarray, floor: noise_floor.Floor, part: np.ndarray) -> dict[str, Any]:
    """Return the figures of some of the problems, each with its interval and its floors."""
    return {
        "n_problems": int(part.sum()),
        "efficiency": efficiency.summary(picked[part]),
        "interval": bootstrap.intervals(picked[part]),
        "within_2_percent": efficiency.percent(np.mean(picked[part] >= WITHIN)),
        "noise_floor": _floors(floor, part),
    }


def _floors(floor: noise_floor.Floor, part: np.ndarray) -> dict[str, Any]:
    """Return what the selectors that know more score on some of the problems."""
    return {name: efficiency.summary(values[part]) for name, values in floor.selectors().items()}


def _baselines(
    measurements: Measurements, scored: Scored, floor: noise_floor.Floor, supported: np.ndarray, hardware: Hardware
) -> dict[str, Any]:
    """Return what choosing without a model achieves, each with the efficiency keys and the floors of the model."""
    rows, pool = scored.rows, scored.pool
    possible = np.where(pool, scored.achieved, 0.0)
    single, names = _best_single(measurements, supported)
    fixed = single[measurements.problems["ndim"].to_numpy()[rows]]
    ruled = np.argmax(np.where(pool, hand_rule(measurements, rows, hardware), -np.inf), axis=1)
    everything = np.arange(len(rows))
    floors = {"noise_floor": _floors(floor, np.ones(len(rows), bool))}
    return {
        "best_single_kernel": {
            "meaning": "the candidate with the best mean efficiency on the training problems, one a dimensionality",
            "candidates": names,
            **_figures(possible[everything, fixed]),
            **floors,
        },
        "random_supported": {
            "meaning": "expectation over the supported candidates of each problem",
            **_figures(possible.sum(axis=1) / np.maximum(pool.sum(axis=1), 1)),
            **floors,
        },
        "hand_rule": {
            "meaning": "largest tile reuse times tile fill times compute units kept busy, then the widest vectors",
            **_figures(possible[everything, ruled]),
            **floors,
        },
    }


def _figures(picked: np.ndarray) -> dict[str, Any]:
    return {"efficiency": efficiency.summary(picked), "percentiles": efficiency.percentiles(picked)}


def _pipelines(measurements: Measurements, picks: np.ndarray, achieved: np.ndarray) -> dict[str, dict[str, int]]:
    """Return on how many problems a kernel of each pipeline was picked, and on how many one was the best."""
    pipelines = measurements.candidates["pipeline"].to_numpy()
    picked, best = pipelines[picks], pipelines[achieved.argmax(axis=1)]
    return {
        str(name): {"picked": int((picked == name).sum()), "best": int((best == name).sum())}
        for name in sorted(set(picked) | set(best))
    }


def _best_single(measurements: Measurements, supported: np.ndarray) -> tuple[np.ndarray, dict[str, str]]:
    """Return the candidate row by ndim ([ndim] -> row), and its names, chosen on the training problems alone.

    Supported pairs without a row were not sampled and are left out of a candidate's mean; everything else that did
    not run counts 0.
    """
    problems = measurements.problems
    solvable = efficiency.problem_best(measurements) > 0
    training = np.flatnonzero((problems["split"] == "train").to_numpy() & solvable)
    achieved = efficiency.grid(measurements, training)
    seen = ~supported[training]
    position = np.full(len(problems), -1)
    position[training] = np.arange(len(training))
    rows = position[measurements.problem]
    seen[rows[rows >= 0], measurements.candidate[rows >= 0]] = True
    chosen = np.zeros(4, np.int64)
    names = {}
    for ndim, part in _parts(problems["ndim"].iloc[training]):
        mean = achieved[part].sum(axis=0) / np.maximum(seen[part].sum(axis=0), 1)
        chosen[ndim] = int(np.argmax(mean))
        names[f"{ndim}d"] = str(measurements.candidates["candidate"].iloc[chosen[ndim]])
    return chosen, names


def hand_rule(measurements: Measurements, rows: np.ndarray, hardware: Hardware) -> np.ndarray:
    """Return the score of a rule that an engineer would write, float64 [R, Q]; higher is better.

    The most reuse (tile_m tile_n / (tile_m + tile_n)) that the shape can fill, times the share of compute units with
    a block; of equals, the widest vectors. It knows nothing of pipelines and of times.
    """
    candidates = measurements.candidates
    shape = (len(rows), len(candidates))
    problem, candidate = (index.ravel() for index in np.indices(shape))
    names = ("tile_intensity", "fill_m", "fill_n", "fill_k", "blocks_per_cu")
    chosen = families.of_kernels(candidates["kernel"].tolist()).features
    table = features.compute(
        measurements.problems.iloc[rows], candidates, problem, candidate, hardware, chosen, names
    ).astype(np.float64)
    score = table[:, :4].prod(axis=1) * np.minimum(table[:, 4], 1.0)
    vectors = candidates[["vec_a", "vec_b", "vec_c"]].sum(axis=1).to_numpy()
    return score.reshape(shape) * (1 + 1e-3 * vectors)


def _worst(
    measurements: Measurements,
    scored: Scored,
    novelty: explain.Novelty,
    model: tuple[lightgbm.Booster, dict[str, Any]] | None,
    hardware: Hardware,
) -> list[dict[str, Any]]:
    """Return the worst picks, worst first, each with what is known of why."""
    problems = measurements.problems.iloc[scored.rows]
    training = measurements.problems[(measurements.problems["split"] == "train").to_numpy()]
    candidates = measurements.candidates["candidate"].to_numpy()
    keys = problems["problem_key"].to_numpy()
    best = scored.achieved.argmax(axis=1)
    listed = sorted(range(len(keys)), key=lambda i: (scored.picked[i], keys[i]))[:WORST]
    reasons: list[list[dict[str, Any]]] = [[] for _ in listed]
    if model is not None:
        reasons = explain.contributions(
            *model, problems.iloc[listed], measurements.candidates, scored.picks[listed], best[listed], hardware
        )
    return [
        {
            "problem_key": str(keys[i]),
            "network": str(problems["network"].iloc[i]),
            "layer": str(problems["layer"].iloc[i]),
            "problem": dims_text(problems.iloc[i]),
            "pick": str(candidates[scored.picks[i]]),
            "best": str(candidates[best[i]]),
            "efficiency": efficiency.percent(scored.picked[i]),
            "pick_failed": bool(scored.picked[i] == 0),
            "spoke_for_the_pick": reason,
            "outside_training": novelty.outside(i),
            "distance_percentile": round(float(novelty.percentile[i]), 1),
            "nearest_training_problem": dims_text(training.iloc[novelty.nearest[i]]),
        }
        for i, reason in zip(listed, reasons, strict=True)
    ]


def _every_pick(measurements: Measurements, scored: Scored, tied: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the pick of every problem that is scored, by problem key, with its efficiency in percent.

    ``ties`` are the candidates that the noise does not tell from the best, which is one of them; ``tied``: the pick is.
    """
    keys = measurements.problems["problem_key"].to_numpy()[scored.rows].tolist()
    names = measurements.candidates["candidate"].to_numpy()[scored.picks].tolist()
    picked = [efficiency.percent(value) for value in scored.picked]
    several = tied.sum(axis=1).tolist()
    among = np.take_along_axis(tied, scored.picks[:, None], axis=1)[:, 0].tolist()
    return {
        key: {"candidate": name, "efficiency": value, "ties": count, "tied": is_tied}
        for key, name, value, count, is_tied in sorted(zip(keys, names, picked, several, among, strict=True))
    }


def dims_text(problem: pd.Series) -> str:
    """Return the 19 dimensions of a problem as one line."""
    return " ".join(f"{name}={problem[name]}" for name in DIMS)
