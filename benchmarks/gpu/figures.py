#!/usr/bin/env python3
"""Print the figures of docs/internals/results.md about the model's picks, against one kernel and against cuDNN.

It reads ``results/`` after ``snakemake --cores 16 results/models/sm_90``, and the recording.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.dataset.dataset import Dataset
from tileseer.learn import ranking
from tileseer.learn.model import Model

ARCH = "sm_90"
ROOT = Path(__file__).parents[2]
QUANTILES = (10, 50, 90)


def percentiles(values: np.ndarray, digits: int = 2) -> str:
    """Return n, P10, median and P90 in words."""
    p10, p50, p90 = np.percentile(values, QUANTILES)
    return f"n {len(values)}, P10 {p10:.{digits}f}, median {p50:.{digits}f}, P90 {p90:.{digits}f}"


def picks(results: Path, operation: str) -> pd.DataFrame:
    """Return for each solvable validation problem its key and the times of the pick and of the oracle, microseconds."""
    measured = Dataset.read(results / f"datasets/{ARCH}/{operation}.parquet")
    training = results / f"training/{ARCH}/{operation}"
    scored = ranking.rank_held_out(Model.read(training), measured)
    times = np.full(scored.offered.shape, np.inf)
    ok = measured.ok
    times[measured.problem[ok], measured.candidate[ok]] = measured.latency_ms[ok] * 1000
    rows, picked = scored.rows, scored.picks
    return pd.DataFrame(
        {
            "problem_key": measured.problems["problem_key"].to_numpy()[rows],
            "ndim": measured.problems["ndim"].to_numpy()[rows],
            "pick_us": times[rows, picked],
            "oracle_us": times[rows].min(axis=1),
            "worst_us": np.where(np.isfinite(times[rows]), times[rows], 0).max(axis=1),
        }
    )


def against_cudnn(found: pd.DataFrame, operation: str) -> None:
    """Print how the picks compare with cuDNN on the problems that both ran."""
    cudnn = pd.read_csv(ROOT / f"config/recorded/{ARCH}/{operation}/cudnn.csv").dropna(subset=["median_us"])
    both = found.merge(cudnn, on="problem_key")
    for name in ("pick", "oracle"):
        ratio = (both["median_us"] / both[f"{name}_us"]).to_numpy()
        mean = float(np.exp(np.log(ratio).mean()))
        print(
            f"{operation}: cuDNN time / {name} time: {percentiles(ratio)}, geometric mean {mean:.2f}, "
            f"faster than cuDNN on {100 * np.mean(ratio > 1):.1f} %"
        )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    args = parser.parse_args()

    for operation in ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"):
        report = json.loads((args.results / f"validation/{ARCH}/{operation}.json").read_text())
        single = report["baselines"]["best_single_kernel"]["efficiency"]
        print(f"{operation}: {report['n_problems']} problems, pick {report['efficiency']}, one fixed kernel {single}")
        found = picks(args.results, operation)
        print(
            f"{operation}: slowest / fastest kernel of a problem: {percentiles(found['worst_us'] / found['oracle_us'])}"
        )
        against_cudnn(found, operation)


if __name__ == "__main__":
    main()
