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
from tileseer.data.dataset import Dataset
from tileseer.facts.operations import VARIANTS
from tileseer.problems.problem_table import read_uses
from tileseer.serve.evaluation import Evaluation, best_us

Run = tuple[str, str]
RECORDINGS = Path(__file__).parents[1] / "config/recorded"


def times_of(results: Path, arch: str, operation: str) -> dict[Run, tuple[float, float]]:
    """Microseconds of the fastest candidates and of the picks of each training run, in one direction."""
    measured = results / "datasets" / arch / operation
    # A recorded arch is trained on its recording.
    dataset = Dataset.read(measured if measured.exists() else RECORDINGS / arch / operation)
    fastest = pd.Series(best_us(dataset), dataset.problems["problem_key"])
    uses = read_uses(results / "problems" / f"{operation}.uses.parquet")
    uses["us"] = uses["problem_key"].map(fastest) * uses["occurrences"]
    of_run = uses.groupby(["network", "run"])["us"].sum()
    evaluation = read_document(results / "evaluation" / arch / f"{operation}.json", Evaluation)
    times = {}
    for each in evaluation.networks:
        if each.run.startswith("train") and not each.failed:
            best = of_run[each.network, each.run]
            times[each.network, each.run] = best, 100 * best / each.efficiency
    return times


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
