#!/usr/bin/env python3
"""What active measuring loses: models of a few chosen pairs against one of all, on a dataset that has all of them.

The dataset plays the device. Each line is a model trained on so many of the training pairs, and the efficiency of its
picks on the dataset's validation problems, all of whose pairs were measured; then the difference of both, problem by
problem, with its 95 % interval.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tileseer.active import choice
from tileseer.dataset import bootstrap, efficiency, schema
from tileseer.gpu import hardware
from tileseer.model import trainer
from tileseer.settings.model import TrainingParameters
from tileseer.validation import ranking

CONFIG = Path(__file__).parents[1] / "config"


def picked(data, product, settings) -> np.ndarray:
    """Train on ``data`` and return the efficiency of the picks on the validation problems."""
    scores, offered = ranking.rank_pool(data, trainer.train(data, product, settings).model)
    return ranking.score(data, scores, offered).picked


def main() -> None:
    """Print a line for all pairs, and for each round and random pairs of the same number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--product", default="gfx950_mi355x")
    parser.add_argument("--budget", default=0.15, type=float)
    parser.add_argument("--first", default=0.02, type=float)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--trees", default=600, type=int)
    parser.add_argument("--last", action="store_true", help="leave out all rounds but the last")
    parser.add_argument("--seed", default=2, type=int, help="of the draw; the first round has seed 1")
    args = parser.parse_args()

    data = schema.load(args.dataset)
    product = hardware.get(CONFIG / "hardware.yaml", args.product)
    settings = TrainingParameters(n_estimators=args.trees, cv_estimators=10, folds=2)
    tried = efficiency.in_pool(data)
    train = (data.problems["split"] == "train").to_numpy()[data.problem]
    rows = np.flatnonzero(tried & train)
    rows = rows[np.lexsort((data.candidate[rows], data.problem[rows]))]
    pool = choice.Pool(data.problems, data.candidates, data.problem[rows], data.candidate[rows])
    tflops = np.where(data.status[rows] == efficiency.OK, data.tflops[rows], np.nan)
    wanted = choice.Plan(budget=args.budget, first=args.first, rounds=args.rounds, stable=0.0)
    rounds = choice.choose(pool, product, wanted, lambda at: tflops[at])

    everything = picked(data, product, settings)
    print(f"{data.arch} {data.operation} ({data.device_kind}), {args.trees} trees, {len(everything)} problems")
    print(f"all pairs: {len(rows):,}, {figures(everything)}")

    def show(name: str, chosen: np.ndarray) -> np.ndarray:
        keep = np.ones(len(data.problem), bool)
        keep[rows] = False
        keep[rows[chosen]] = True
        few = picked(data.only(keep), product, settings)
        lost = f"{100 * (few - everything).mean():+.2f} points {bootstrap.of_mean(few - everything)}"
        share = f"{len(chosen):,} pairs, {100 * len(chosen) / len(rows):.1f} %"
        print(f"{name}: {share}, {figures(few)}, {lost}", flush=True)
        return few

    for count, last in enumerate(rounds, start=1):
        if args.last and count < len(rounds):
            continue
        changed = "" if last.picks_changed is None else f" ({100 * last.picks_changed:.0f} % of picks had changed)"
        chosen = np.concatenate([one.pairs for one in rounds[:count]])
        asked = show(f"round {count}{changed}", chosen)
        drawn = show("as many by draw", choice.design(pool, len(chosen), seed=args.seed))
        print(
            f"  rounds minus draw: {100 * (asked - drawn).mean():+.2f} points {bootstrap.of_mean(asked - drawn)}",
            flush=True,
        )


def figures(values: np.ndarray) -> str:
    """Return mean and 10th percentile of efficiencies."""
    return f"mean {100 * values.mean():.2f} %, p10 {np.percentile(100 * values, 10):.2f} %"


if __name__ == "__main__":
    main()
