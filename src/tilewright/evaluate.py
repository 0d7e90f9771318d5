"""How well a ranking chooses on problems it has never seen.

The figure is the efficiency of the pick: its measured TFLOPS over the best measured TFLOPS of the problem. A pick
that was not measured, failed or cannot run counts 0; nothing is left out because it is inconvenient.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from tilewright import efficiency, features, learn, support
from tilewright.errors import UserError
from tilewright.hardware import Hardware
from tilewright.measurements import Measurements
from tilewright.problem import DIMS

WITHIN = 0.98
"""A pick this close to the best is as good as it: single timings do not tell them apart."""
BAD = 0.80
WORST = 10
"""Problems listed as the worst picks."""


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
    supported = support.check(problems, pool, spec["variant"], wave_size=hardware.wave_size) == 0
    held_out = (problems["split"] == "validation").to_numpy()
    problem, candidate = np.nonzero(supported & held_out[:, None])
    scores = np.full((len(problems), len(measurements.candidates)), -np.inf)
    scores[problem, position[candidate]] = learn.predict(
        booster, spec, problems, pool, problem, candidate, hardware, threads
    )
    offered = np.zeros(scores.shape, bool)
    offered[:, position] = supported
    return scores, offered


def evaluate(
    measurements: Measurements,
    scores: np.ndarray,
    supported: np.ndarray,
    hardware: Hardware,
) -> dict[str, Any]:
    """Return the validation report; percentages have four decimals.

    ``scores`` (float64 [P, Q], higher is better) and ``supported`` (bool [P, Q]: the CPU support rules pass and the
    candidate is published) cover every problem and candidate of ``measurements``, as a selection would see them.
    Only problems with split ``validation`` are scored; those on which nothing ran are counted, not scored.
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
    picked = ranked[:, 0]
    problems = measurements.problems.iloc[rows]
    return {
        "operation": measurements.operation,
        "arch": measurements.arch,
        "device": measurements.device,
        "device_kind": measurements.device_kind,
        "n_problems": len(rows),
        "n_without_measurement": int((~solvable).sum()),
        "n_candidates": len(measurements.candidates),
        "mean_pool_size": round(float(pool.sum(axis=1).mean()), 2),
        **_pick_metrics(ranked),
        "pipelines": _pipelines(measurements, order[:, 0], achieved),
        "by_ndim": {f"{ndim}d": _stratum(picked[part]) for ndim, part in _parts(problems["ndim"])},
        "by_network": {str(network): _stratum(picked[part]) for network, part in _parts(problems["network"])},
        "baselines": _baselines(measurements, rows, achieved, supported, hardware),
        "worst": _worst(measurements, rows, order[:, 0], achieved, picked),
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


def _stratum(picked: np.ndarray) -> dict[str, Any]:
    return {"n_problems": len(picked), "efficiency": efficiency.summary(picked)}


def _baselines(
    measurements: Measurements, rows: np.ndarray, achieved: np.ndarray, supported: np.ndarray, hardware: Hardware
) -> dict[str, Any]:
    """Return what choosing without a model achieves, each with the efficiency keys of the model."""
    pool = supported[rows]
    possible = np.where(pool, achieved, 0.0)
    single, names = _best_single(measurements, supported)
    fixed = single[measurements.problems["ndim"].to_numpy()[rows]]
    ruled = np.argmax(np.where(pool, hand_rule(measurements, rows, hardware), -np.inf), axis=1)
    everything = np.arange(len(rows))
    return {
        "best_single_kernel": {
            "meaning": "the candidate with the best mean efficiency on the training problems, one a dimensionality",
            "candidates": names,
            **_figures(possible[everything, fixed]),
        },
        "random_supported": {
            "meaning": "expectation over the supported candidates of each problem",
            **_figures(possible.sum(axis=1) / np.maximum(pool.sum(axis=1), 1)),
        },
        "hand_rule": {
            "meaning": "largest tile reuse times tile fill times compute units kept busy, then the widest vectors",
            **_figures(possible[everything, ruled]),
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
    table = features.compute(
        measurements.problems.iloc[rows], candidates, problem, candidate, hardware, "tilewright", names
    ).astype(np.float64)
    score = table[:, :4].prod(axis=1) * np.minimum(table[:, 4], 1.0)
    vectors = candidates[["vec_a", "vec_b", "vec_c"]].sum(axis=1).to_numpy()
    return score.reshape(shape) * (1 + 1e-3 * vectors)


def _worst(
    measurements: Measurements, rows: np.ndarray, picks: np.ndarray, achieved: np.ndarray, picked: np.ndarray
) -> list[dict[str, Any]]:
    """Return the worst picks, worst first."""
    problems = measurements.problems.iloc[rows]
    candidates = measurements.candidates["candidate"].to_numpy()
    keys = problems["problem_key"].to_numpy()
    listed = sorted(range(len(rows)), key=lambda i: (picked[i], keys[i]))[:WORST]
    return [
        {
            "problem_key": str(keys[i]),
            "network": str(problems["network"].iloc[i]),
            "layer": str(problems["layer"].iloc[i]),
            "problem": " ".join(f"{name}={problems[name].iloc[i]}" for name in DIMS),
            "pick": str(candidates[picks[i]]),
            "best": str(candidates[int(np.argmax(achieved[i]))]),
            "efficiency": efficiency.percent(picked[i]),
        }
        for i in listed
    ]
