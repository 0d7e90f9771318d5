#!/usr/bin/env python3
"""What active measuring loses: models of a few chosen pairs against one of all, on a dataset that has all of them.

The dataset plays the device. For each budget a line of the chosen pairs and one of as many drawn ones: the efficiency
of the picks on problems that were held out, all of whose pairs were measured, what is lost against a model of all
pairs, and what is gained over the draw, problem by problem with 95 % intervals. Figures are means over seeds. Where the
dataset holds out no problems, each seed holds out another fifth of the layers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.costmodel.coefficients import load_coefficients
from tileseer.dataset.dataset import Dataset
from tileseer.gpus import hardware
from tileseer.learn import active_choice as choice
from tileseer.learn import efficiency, ranking
from tileseer.learn.cross_validation import assign_folds
from tileseer.learn.features.features import Features
from tileseer.learn.fit import Recipe, fit
from tileseer.learn.training import settings_for

CONFIG = Path(__file__).parents[1] / "config"


def main() -> None:
    """Print two lines for each budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--product", help="default: the device of the dataset")
    parser.add_argument("--budget", default=[0.05, 0.15], type=float, nargs="+")
    parser.add_argument("--trees", default=300, type=int)
    parser.add_argument("--seeds", default=5, type=int)
    args = parser.parse_args()

    data = Dataset.read(args.dataset)
    product = hardware.read_hardware(CONFIG / "hardware.yaml", args.product or data.device)
    coefficients = load_coefficients(CONFIG / "simulated_device.yaml")
    every_row = TrainingParameters(cv_estimators=args.trees, cv_rows_per_problem=0)
    settings = settings_for(every_row, data)
    led = coefficients if settings.prior == "formula" else None
    recipe = Recipe(Features.of(settings.features, product), settings, led)
    names = ["all", *(f"{share:g} {how}" for share in args.budget for how in ("chosen", "drawn"))]
    found = {name: np.full((args.seeds, len(data.problems)), np.nan) for name in names}

    def judge(name: str, seed: int, split: Dataset, keep: np.ndarray) -> None:
        model = fit(split.only(keep), recipe.small)
        scored = ranking.rank_held_out(model, split)
        found[name][seed, scored.rows] = scored.picked

    for seed, split in enumerate(splits(data, args.seeds)):
        rows, pool = pool_of(split)
        tflops = np.where(split.ok[rows], split.tflops[rows], np.nan)
        if seed and split is data:
            found["all"][seed] = found["all"][0]
        else:
            judge("all", seed, split, np.ones(len(split.problem), bool))
        for share in args.budget:
            plan = choice.ActivePlan(budget=share, stable=-1.0, seed=seed + 1)
            rounds = choice.choose_rounds(pool, product, plan, lambda at, tflops=tflops: tflops[at], led)
            chosen = np.concatenate([one.pairs for one in rounds])
            drawn = np.random.default_rng(seed).permutation(len(rows))[: len(chosen)]
            for how, at in (("chosen", chosen), ("drawn", drawn)):
                keep = np.ones(len(split.problem), bool)
                keep[rows] = False
                keep[rows[at]] = True
                judge(f"{share:g} {how}", seed, split, keep)
    print(
        f"{data.arch} {data.operation} ({data.device_kind}), {args.trees} trees, {args.seeds} seeds, {settings.prior}"
    )
    everything = of_problems(found["all"])
    for name in names:
        values = of_problems(found[name])
        line = f"{name}: mean {100 * values.mean():.2f}, p10 {100 * np.quantile(values, 0.1):.2f}"
        line += f", against all {difference(values, everything)}"
        if name.endswith("chosen"):
            line += f", against a draw {difference(values, of_problems(found[name.replace('chosen', 'drawn')]))}"
        print(line, flush=True)


def splits(data: Dataset, seeds: int) -> Iterator[Dataset]:
    """The dataset with problems held out, once a seed."""
    if ranking.has_validation_split(data):
        yield from [data] * seeds
        return
    layers = data.problems["layer_family"].to_numpy()
    names, number, sizes = np.unique(layers, return_inverse=True, return_counts=True)
    fold = assign_folds(names.tolist(), sizes.tolist(), seeds, 1)[number]
    for seed in range(seeds):
        held_out = np.where(fold == seed, "validation", "train")
        yield replace(data, problems=data.problems.assign(split=held_out))


def pool_of(data: Dataset) -> tuple[np.ndarray, Dataset]:
    """The rows of pairs of training problems that were tried, and their pool."""
    rows = np.flatnonzero(data.in_pool & data.trains[data.problem])
    rows = rows[np.lexsort((data.candidate[rows], data.problem[rows]))]
    return rows, data.only(rows)


def of_problems(values: np.ndarray) -> np.ndarray:
    """Mean over the seeds that held a problem out, of the problems that any did."""
    known = ~np.isnan(values).all(axis=0)
    return np.nanmean(values[:, known], axis=0)


def difference(values: np.ndarray, base: np.ndarray) -> str:
    """Mean difference in points with its interval."""
    low, high = efficiency.interval_of_mean(values - base)
    return f"{100 * (values - base).mean():+.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
