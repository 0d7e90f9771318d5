#!/usr/bin/env python3
"""From one GPU to the next, on tables of MIOpen's find-db: how well solvers are picked for layers that nobody has seen,
after 0, 1, 5, 15 and 100 % of the target's other problems, with and without the source GPU.

With the source, trees that learnt it are the start, and trees of the target's rows learn what they miss (as
``model.prior`` does). The layers that judge are in neither.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from solvers import efficiency_of, fitted, label_of, matrix, table, weight_of

from tileseer.gpus.hardware import read_hardware
from tileseer.learn import efficiency
from tileseer.problems.problem import DIMS

SHARES = (0.0, 0.01, 0.05, 0.15, 1.0)
HELD_OUT = 0.2
SEEDS = range(3)
TREES = 300
FEW, FEW_TREES = 2000, 100
"""Fewer rows get fewer trees."""
LAYER = [name for name in DIMS if name != "N"]


def scores(
    features: np.ndarray, rows: pd.DataFrame, learnt: np.ndarray, judged: np.ndarray, start: np.ndarray | None
) -> np.ndarray:
    """Scores of the rows ``judged`` by a model of the rows ``learnt``; ``start``: scores of the source's trees."""
    base = np.zeros(len(rows)) if start is None else start
    if not learnt.any():
        return base[judged]
    reached = efficiency_of(rows, "ms")[learnt]
    label, weight = label_of(reached) - base[learnt], weight_of(reached)
    if start is not None:
        # What both miss on all candidates of a problem decides no pick.
        problem = np.unique(rows["problem"].to_numpy()[learnt], return_inverse=True)[1]
        label = label - (np.bincount(problem, weight * label) / np.bincount(problem, weight))[problem]
    model = fitted(features[learnt], label, weight, TREES if learnt.sum() >= FEW else FEW_TREES)
    return base[judged] + np.asarray(model.predict(features[judged], num_threads=1))


def picks(rows: pd.DataFrame, score: np.ndarray) -> np.ndarray:
    """Efficiency of each problem's pick."""
    chosen = pd.Series(score, rows.index).groupby(rows["problem"]).idxmax()
    return efficiency_of(rows, "ms")[rows.index.get_indexer(chosen)]


def main() -> int:
    """Print a table in Markdown; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="Parquet file")
    parser.add_argument("target", type=Path, help="Parquet file")
    parser.add_argument("--units", type=int, nargs=2, required=True, help="compute units of source and target")
    parser.add_argument("--device", default="gfx90a_mi210", help="product whose other facts stand for both")
    parser.add_argument("--operations", nargs="+", default=["forward_fp16", "bwd_data_fp32", "bwd_weight_fp32"])
    parser.add_argument("--problems", type=int, default=4000, help="of each operation and GPU")
    args = parser.parse_args()
    product = read_hardware(Path(__file__).parents[1] / "config/hardware.yaml", args.device)
    devices = [product.model_copy(update={"compute_units": units}) for units in args.units]
    found: dict[tuple[float, bool], list[np.ndarray]] = {}
    for operation in args.operations:
        source, target = (table(path, operation, args.problems) for path in (args.source, args.target))
        layers = pd.MultiIndex.from_frame(target[LAYER])
        names = layers.unique()
        of_source, of_target = matrix(source, operation, devices[0]), matrix(target, operation, devices[1])
        for seed in SEEDS:
            draw = np.random.default_rng(seed)
            unseen = names[draw.random(len(names)) < HELD_OUT]
            judged = np.asarray(layers.isin(unseen))
            kept = ~np.asarray(pd.MultiIndex.from_frame(source[LAYER]).isin(unseen))
            reached = efficiency_of(source, "ms")[kept]
            trees = fitted(of_source[kept], label_of(reached), weight_of(reached), TREES)
            start = np.asarray(trees.predict(of_target, num_threads=1))
            place = draw.random(target["problem"].max() + 1)[target["problem"]]
            for share in SHARES:
                learnt = ~judged & (place < share)
                for with_source in (False, True) if share else (True,):
                    score = scores(of_target, target, learnt, judged, start if with_source else None)
                    found.setdefault((share, with_source), []).append(
                        picks(target[judged].reset_index(drop=True), score)
                    )
    print("| target's problems | without the source: mean (interval) / median / P10 | with the source |\n|---|---|---|")
    for share in SHARES:
        print(f"| {share:.0%} | {_told(found.get((share, False)))} | {_told(found[share, True])} |")
    return 0


def _told(parts: list[np.ndarray] | None) -> str:
    if parts is None:
        return "–"
    values = np.concatenate(parts)
    low, high = efficiency.interval_of_mean(values)
    median, p10 = np.percentile(100 * values, [50, 10])
    return f"{100 * values.mean():.2f} ({low:.2f} to {high:.2f}) / {median:.1f} / {p10:.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
