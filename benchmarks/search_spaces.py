#!/usr/bin/env python3
"""The regression of active measuring on complete search spaces of others: how near the best a few measurements come.

Reads files of Kernel Tuner's benchmark hub (T4-like JSON): ``cache`` holds a configuration for each key, with the
parameters of ``tune_params_keys`` and ``times``, its repeats in milliseconds. A configuration without numbers there
failed. There is no formula of these kernels, so a draw comes first and the model's rounds follow, against a draw of as
many. Prints the efficiency of the fastest configuration that was measured, mean over seeds with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import lightgbm
import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.learn import efficiency, fit

ROUNDS, TREES = 5, 150


@reports_user_errors
def main() -> int:
    """Print a line for each file and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--budget", default=[0.01, 0.05, 0.15], type=float, nargs="+")
    parser.add_argument("--seeds", default=5, type=int)
    args = parser.parse_args()
    for path in args.files:
        parameters, times = read(path)
        speed = np.nanmin(times) / times
        for share in args.budget:
            count = int(share * len(times))
            led = np.array([best(speed, rounds(parameters, speed, count, seed)) for seed in range(args.seeds)])
            drawn = np.array([best(speed, draw(len(times), count, seed)) for seed in range(args.seeds)])
            low, high = efficiency.interval_of_mean(led - drawn)
            print(
                f"{path.name}, {count} of {len(times)}: rounds {100 * led.mean():.2f} %, draw {100 * drawn.mean():.2f} "
                f"%, difference {100 * (led - drawn).mean():+.2f} ({low:.2f} to {high:.2f})",
                flush=True,
            )
    return 0


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Parameters [n, k] of all configurations, words as their places in the alphabet, and mean times [n] (NaN: failed).

    ``UserError`` for a file of another form.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = list(content["cache"].values())
        names = content.get("tune_params_keys") or [name for name in entries[0] if name not in ("times", "time")]
        columns = [[entry[name] for entry in entries] for name in names]
        times = [mean_time(entry.get("times")) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{path}: this is no search space of Kernel Tuner's hub, a JSON file with cache and times ({error!r})"
        ) from error
    if np.isnan(times).all():
        raise UserError(f"{path}: no configuration has a time")
    return np.stack([numbers(column) for column in columns], axis=1), np.array(times)


def mean_time(times: object) -> float:
    """Mean of the repeats that are positive numbers; NaN without any."""
    known = [t for t in times if isinstance(t, int | float) and t > 0] if isinstance(times, list) else []
    return float(np.mean(known)) if known else float("nan")


def numbers(values: list[object]) -> np.ndarray:
    """Values as float64; words as their places in the alphabet."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values, np.float64)
    return np.unique([str(value) for value in values], return_inverse=True)[1].astype(np.float64)


def draw(configurations: int, count: int, seed: int) -> np.ndarray:
    """So many configurations at random."""
    return np.random.default_rng(seed).permutation(configurations)[:count]


def rounds(parameters: np.ndarray, speed: np.ndarray, count: int, seed: int) -> np.ndarray:
    """A first share at random, then in rounds what the regression finds fastest."""
    measured = draw(len(speed), max(count // ROUNDS, 1), seed)
    settings = TrainingParameters(num_leaves=31, min_child_samples=5, seed=seed)
    names = [f"p{i}" for i in range(parameters.shape[1])]
    for number in range(1, ROUNDS):
        at = measured[~np.isnan(speed[measured])]
        score = np.random.default_rng([seed, number]).random(len(speed))
        if len(at):
            achieved = speed[at] / speed[at].max()
            used, label = fit.parameters(settings, 1), fit.target(achieved)
            weight = fit.weight(np.zeros(len(at), int), achieved)
            data = lightgbm.Dataset(parameters[at], label, weight=weight, feature_name=names, params=used)
            booster = lightgbm.train(used, data, num_boost_round=TREES)
            score = np.asarray(booster.predict(parameters, num_threads=1))
        score[measured] = -np.inf
        left = (count - len(measured)) // (ROUNDS - number)
        measured = np.concatenate([measured, np.argsort(-score, kind="stable")[:left]])
    return measured


def best(speed: np.ndarray, measured: np.ndarray) -> float:
    """Efficiency of the fastest configuration among those measured; 0 where all failed."""
    return float(np.nan_to_num(speed[measured]).max(initial=0.0))


if __name__ == "__main__":
    raise SystemExit(main())
