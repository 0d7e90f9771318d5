#!/usr/bin/env python3
"""What the picks that ship cost whole training steps: all three directions of a network's layers together.

    echo 'problems: {validation_problems: 0}' > every_network.yaml
    tileseer run results/models/gfx950 --configfile every_network.yaml
    python benchmarks/training_steps.py results --arch gfx950

``validation_problems: 0`` draws every network of the test split, so that each has all its directions. Prints the worst
steps: time of the fastest candidates over the time of the picks, percent, of all directions and of each.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import pandas as pd

from tileseer.core.documents import read_document
from tileseer.facts.operations import VARIANTS
from tileseer.judge.evaluation import Evaluation

Run = tuple[str, str]


def times_of(results: Path, arch: str, operation: str) -> dict[Run, tuple[float, float]]:
    """Microseconds of the fastest candidates and of the picks of each training run, in one direction."""
    evaluation = read_document(results / "evaluation" / arch / f"{operation}.json", Evaluation)
    runs = (one for one in evaluation.networks if one.run.startswith("train") and not one.failed)
    return {(one.network, one.run): (one.time_us, 100 * one.time_us / one.by_time) for one in runs}


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--rows", type=int, default=10)
    args = parser.parse_args()
    evaluations = args.results / "evaluation" / args.arch
    directions = [name for name in VARIANTS if (evaluations / f"{name}_{args.dtype}.json").exists()]
    steps: dict[Run, list[tuple[float, float]]] = defaultdict(list)
    for direction in directions:
        for run, times in times_of(args.results, args.arch, f"{direction}_{args.dtype}").items():
            steps[run].append(times)
    whole = {run: pd.DataFrame(times).sum() for run, times in steps.items() if len(times) == len(directions)}
    if not whole:
        raise SystemExit(f"{args.arch}: no training run of a network has all its layers in {', '.join(directions)}")
    efficiency = pd.Series({run: 100 * best / taken for run, (best, taken) in whole.items()}).sort_values()
    print(f"{len(efficiency)} training steps: mean {efficiency.mean():.2f} %, P10 {efficiency.quantile(0.1):.2f} %\n")
    print(f"| network | run | step | {' | '.join(directions)} |\n|---|---|---|{'---|' * len(directions)}")
    for network, run in efficiency.index[: args.rows]:
        cells = [efficiency[network, run], *(100 * best / taken for best, taken in steps[network, run])]
        print(f"| {network} | {run} | {' | '.join(f'{cell:.1f}' for cell in cells)} |")


if __name__ == "__main__":
    main()
