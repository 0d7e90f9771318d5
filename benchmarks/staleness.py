#!/usr/bin/env python3
"""How much of the loss of stale picks a budget of new measurements recovers: random pairs against those of
``tileseer stale``, on tables of MIOpen's find-db (rows as tools/recorded_miopen.py reads them).

The model has learnt the old times. For every strategy, what is not measured again keeps its old time, moved by the mean
change of its solver among the pairs that are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from solvers import efficiency_of, fitted, label_of, matrix, table, weight_of

from tileseer.client import staleness
from tileseer.conv.problem import DIMS
from tileseer.gpu.hardware import get

BUDGETS = (0.1, 0.2)
TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
SEEDS = range(5)
DRAWS = 1000
"""Of problems, for an interval of 95 %."""
PRIOR_PAIRS = 5
"""Pairs without a change that join those of a solver: few say little."""


def drifted(rows: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Rows with new times: every other solver becomes faster by a factor of its own, and every pair a little noisy."""
    draw = np.random.default_rng(seed)
    solvers = sorted(rows["solver"].unique())
    change = dict(
        zip(solvers, -np.abs(draw.normal(0, 0.6, len(solvers))) * (draw.random(len(solvers)) < 1 / 2), strict=True)
    )
    log = rows["solver"].map(change) * draw.uniform(0.5, 1.5, len(rows)) + draw.normal(0, 0.1, len(rows))
    return rows.assign(new=rows["ms"] * np.exp(log))


def picked(rows: pd.DataFrame, again: np.ndarray) -> np.ndarray:
    """Efficiency, by new times, of each problem's pick after some pairs (bool [n]) were measured again."""
    change = pd.Series(np.log(rows["new"] / rows["ms"]))
    of_solver = change[again].groupby(rows["solver"][again]).agg(["sum", "size"])
    shift = rows["solver"].map(of_solver["sum"] / (of_solver["size"] + PRIOR_PAIRS)).fillna(0.0)
    time = np.where(again, np.log(rows["new"]), np.log(rows["ms"]) + shift)
    chosen = pd.Series(time, rows.index).groupby(rows["problem"]).idxmin()
    return efficiency_of(rows, "new")[chosen]


def recovered(rows: pd.DataFrame, expected: np.ndarray) -> list[tuple[str, float, np.ndarray]]:
    """(strategy, budget, gain of each problem over keeping the old picks)."""
    kept = picked(rows, np.zeros(len(rows), bool))
    found = []
    for budget in BUDGETS:
        count = int(budget * len(rows))
        chance = [np.random.default_rng(seed).permutation(len(rows)) < count for seed in SEEDS]
        found.append(("random", budget, np.mean([picked(rows, again) for again in chance], axis=0) - kept))
        for trust in TRUSTS:
            mixed = (1 - trust) * np.log(rows["ms"].to_numpy()) + trust * expected
            behind = staleness.behind(rows["problem"].to_numpy(), mixed)
            again = np.argsort(np.argsort(behind, kind="stable")) < count
            found.append((f"closest, model {trust:.0%}", budget, picked(rows, again) - kept))
    return found


def main() -> int:
    """Print a table in Markdown; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path, help="Parquet file")
    parser.add_argument("new", type=Path, nargs="?", help="Parquet file; without it the old times drift by chance")
    parser.add_argument("--device", default="gfx90a_mi210", help="product of config/hardware.yaml")
    parser.add_argument("--operations", nargs="+", default=["forward_fp16", "bwd_data_fp32", "bwd_weight_fp32"])
    parser.add_argument("--problems", type=int, default=4000, help="of each operation")
    args = parser.parse_args()
    hardware = get(Path(__file__).parents[1] / "config/hardware.yaml", args.device)
    print("| operation | old picks keep, % | strategy | budget | recovered, % of the loss |\n|---|---|---|---|---|")
    for number, operation in enumerate(args.operations):
        rows = table(args.old, operation, args.problems)
        if args.new:
            new = table(args.new, operation, 10**9)[[*DIMS, "solver", "ms"]].rename(columns={"ms": "new"})
            rows = rows.merge(new, on=[*DIMS, "solver"])
        else:
            rows = drifted(rows, number)
        rows = rows[rows.groupby("problem")["ms"].transform("size") > 1]
        rows = rows.sort_values("problem", kind="stable").reset_index(drop=True)
        features = matrix(rows, operation, hardware)
        reached = efficiency_of(rows, "ms")
        model = fitted(features, label_of(reached), weight_of(reached), 300)
        expected = -np.asarray(model.predict(features, num_threads=1))
        kept = picked(rows, np.zeros(len(rows), bool))
        for strategy, budget, gain in recovered(rows, expected):
            drawn = np.random.default_rng(1).integers(len(kept), size=(DRAWS, len(kept)))
            low, high = np.percentile(100 * gain[drawn].mean(axis=1) / (1 - kept[drawn].mean(axis=1)), [2.5, 97.5])
            share = 100 * gain.mean() / (1 - kept.mean())
            told = f"{share:.1f} ({low:.1f} to {high:.1f})"
            print(f"| {operation} | {100 * kept.mean():.2f} | {strategy} | {budget:.0%} | {told} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
