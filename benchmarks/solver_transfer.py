#!/usr/bin/env python3
"""From one GPU to the next, on tables of MIOpen's find-db: how well solvers are picked for layers that nobody has seen,
after shares of the target's other problems, with and without the source GPU.

``prior``: trees that learnt the source are the start, and trees of the target's rows learn what they miss (as
``model.prior`` does). ``both``: one model of the rows of both, with a feature that says which. The layers that judge
are in none of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from solvers import efficiency_of, fitted, label_of, matrix, table, weight_of

from tileseer.facts.hardware import read_hardware
from tileseer.learn import efficiency
from tileseer.problems.problem import DIMS

WAYS = ("alone", "prior", "both")
HELD_OUT = 0.2
TREES = 300
MORE = 3.0
"""Weight of a row of the target beside one of the source."""
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


def scores_of_both(
    source: np.ndarray, reached: np.ndarray, target: np.ndarray, rows: pd.DataFrame, learnt: np.ndarray
) -> np.ndarray:
    """Scores of all rows of the target by one model: its rows ``learnt``, and those of the source (``reached``)."""
    own = efficiency_of(rows, "ms")[learnt]
    features = np.vstack([_marked(source, 0), _marked(target[learnt], 1)])
    label = np.concatenate([label_of(reached), label_of(own)])
    weight = np.concatenate([weight_of(reached), MORE * weight_of(own)])
    return np.asarray(fitted(features, label, weight, TREES).predict(_marked(target, 1), num_threads=1))


def _marked(features: np.ndarray, device: int) -> np.ndarray:
    return np.column_stack([np.full(len(features), device, np.float32), features])


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
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.01, 0.05, 0.15, 1.0])
    parser.add_argument("--seeds", type=int, default=3, help="how many draws of the layers that judge")
    args = parser.parse_args()
    product = read_hardware(Path(__file__).parents[1] / "config/hardware.yaml", args.device)
    devices = [product.model_copy(update={"compute_units": units}) for units in args.units]
    found: dict[tuple[float, str], dict[str, list[np.ndarray]]] = {}
    for operation in args.operations:
        source, target = (table(path, operation, args.problems) for path in (args.source, args.target))
        layers = pd.MultiIndex.from_frame(target[LAYER])
        names = layers.unique()
        of_source, of_target = matrix(source, operation, devices[0]), matrix(target, operation, devices[1])
        for seed in range(args.seeds):
            draw = np.random.default_rng(seed)
            unseen = names[draw.random(len(names)) < HELD_OUT]
            judged = np.asarray(layers.isin(unseen))
            kept = ~np.asarray(pd.MultiIndex.from_frame(source[LAYER]).isin(unseen))
            reached = efficiency_of(source, "ms")[kept]
            trees = fitted(of_source[kept], label_of(reached), weight_of(reached), TREES)
            start = np.asarray(trees.predict(of_target, num_threads=1))
            place = draw.random(target["problem"].max() + 1)[target["problem"]]
            for share in args.shares:
                learnt = ~judged & (place < share)
                for way in WAYS if share else ("prior",):
                    if way == "both":
                        score = scores_of_both(of_source[kept], reached, of_target, target, learnt)[judged]
                    else:
                        score = scores(of_target, target, learnt, judged, start if way == "prior" else None)
                    reach = picks(target[judged].reset_index(drop=True), score)
                    found.setdefault((share, way), {}).setdefault(operation, []).append(reach)
    for operations in [*([name] for name in args.operations), args.operations]:
        print(f"\n{' '.join(operations)}\n\n| target's problems | {' | '.join(WAYS)} |\n|---|---|---|---|")
        for share in args.shares:
            cells = [_figures(found.get((share, way)), operations) for way in WAYS]
            print(f"| {share:.0%} | {' | '.join(cells)} |")
    return 0


def _figures(parts: dict[str, list[np.ndarray]] | None, operations: list[str]) -> str:
    """Mean (interval) / median / P10 of operations, percent."""
    if parts is None:
        return "–"
    values = np.concatenate([part for name in operations for part in parts[name]])
    low, high = efficiency.interval_of_mean(values)
    median, p10 = np.percentile(100 * values, [50, 10])
    return f"{100 * values.mean():.2f} ({low:.2f} to {high:.2f}) / {median:.1f} / {p10:.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
