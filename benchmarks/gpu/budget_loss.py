#!/usr/bin/env python3
"""What a budget of device time saved and lost on a GPU: two datasets of the same problems, one measured in full.

Efficiencies are by the times of the full dataset. ``found``: the kernel that the budget's dataset has as the best of a
problem. ``picked``: what a model picks for the validation problems, trained on each of the two. Give the folders of
results of both workflows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tileseer.core.errors import reports_user_errors
from tileseer.dataset.dataset import Dataset
from tileseer.learn import efficiency, ranking
from tileseer.learn.model import Model
from tileseer.measure.harness.details import read_details


def seconds(results: Path, arch: str, operation: str) -> tuple[float, int]:
    """Return the time that the sessions of an operation took together, those of measuring again too, and the pairs."""
    total, pairs = 0.0, 0
    for log in Path(results, "journals", arch, operation).rglob("*.details.jsonl"):
        ends: list[float] = []
        for event in read_details(log):
            if event["event"] == "session":
                ends.append(0.0)
            ends[-1] = event["at"]
            pairs += event["event"] == "pair" and log.parent.name != "again"
        total += sum(ends)
    return total, pairs


def grid(full: Dataset, some: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the efficiencies of all pairs by the full times, and the times of the other dataset (inf: none)."""
    problems = full.problems["problem_key"].tolist()
    names = full.candidates["candidate"].tolist()
    times = np.full((len(problems), len(names)), np.inf)
    ok = some.ok
    p = np.array([problems.index(key) for key in some.problems["problem_key"]])[some.problem[ok]]
    c = np.array([names.index(name) for name in some.candidates["candidate"]])[some.candidate[ok]]
    times[p, c] = some.latency_ms[ok]
    return full.grid(np.arange(len(problems))), times


def picked(full: Dataset, training: Path) -> np.ndarray:
    """Return the efficiency of a model's picks for the validation problems by the full times."""
    return ranking.rank_held_out(Model.read(training), full).picked


def told(values: np.ndarray) -> str:
    """Return figures of efficiencies, percent."""
    found = efficiency.summary(values)
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items()) + f", {len(values)} problems"


@reports_user_errors
def main() -> None:
    """Compare the folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", required=True, type=Path, help="results of the workflow that measured everything")
    parser.add_argument("--budget", required=True, type=Path, help="results of the one with a budget")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--operation", default="forward_bf16")
    args = parser.parse_args()
    name = f"{args.arch}/{args.operation}"
    full, some = (Dataset.read(path / f"datasets/{name}.parquet") for path in (args.full, args.budget))
    for which, path in (("full", args.full), ("budget", args.budget)):
        spent, pairs = seconds(path, args.arch, args.operation)
        print(f"{which}: {pairs} pairs in {spent:.1f} s of sessions")
    achieved, times = grid(full, some)
    solvable = achieved.max(axis=1) > 0
    known = np.isfinite(times).any(axis=1)
    best = np.where(known, achieved[np.arange(len(times)), times.argmin(axis=1)], 0.0)
    print(f"problems with a time within the budget: {(known & solvable).sum()} of {solvable.sum()}")
    print(f"found: {told(best[solvable])}")
    for which, path in (("full", args.full), ("budget", args.budget)):
        print(f"picked, trained on {which}: {told(picked(full, path / f'training/{name}'))}")


if __name__ == "__main__":
    main()
