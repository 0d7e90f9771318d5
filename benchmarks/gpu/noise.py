#!/usr/bin/env python3
"""How far two runs of the same pairs differ: the noise of a measurement.

Give the details logs of two runs (``CHUNK.details.jsonl``), in two folders or under two seeds; do it once with
``cache: cold`` and once with ``warm``. It prints quantiles of the relative difference of the medians, and
of the noise that each run claims for itself: honest claims are of the size of the differences.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tileseer.core.errors import UserError, reports_user_errors
from tileseer.measure.harness.details import read_details

QUANTILES = (0.1, 0.5, 0.9, 0.99)


def medians(path: Path) -> dict[tuple[str, int, str], tuple[float, float]]:
    """Return (median ms, relative standard error) of each pair that has several samples."""
    found = {}
    for event in read_details(path):
        if event["event"] == "pair" and event["status"] == "ok" and event["result"]["samples"] > 1:
            key = event["kernel"], event["split_k"], event["problem_key"]
            found[key] = event["result"]["median_ms"], event["result"]["noise"]
    return found


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Compare two logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    args = parser.parse_args(argv)
    first, second = medians(args.first), medians(args.second)
    both = sorted(set(first) & set(second))
    if not both:
        raise UserError(f"{args.first} and {args.second} have no measured pair in common")
    one, other = np.array([first[key] for key in both]), np.array([second[key] for key in both])
    difference = np.abs(np.log(other[:, 0] / one[:, 0]))
    claimed = np.hypot(one[:, 1], other[:, 1])
    print(f"{len(both)} pairs in both runs; {len(first) - len(both)} and {len(second) - len(both)} in one only")
    print("quantile    difference    claimed noise")
    for q in QUANTILES:
        print(f"{q:8.0%}    {np.quantile(difference, q):10.3%}    {np.quantile(claimed, q):13.3%}")
    print(f"mean signed difference: {np.mean(np.log(other[:, 0] / one[:, 0])):+.3%}")


if __name__ == "__main__":
    raise SystemExit(main())
