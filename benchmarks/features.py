#!/usr/bin/env python3
"""Feature rows per CPU-second of one core: the sweep pool against the training problems, pairs in random order.

The matrix is made in blocks, as a prediction makes it: fresh memory costs what the operating system charges for it,
which is not what is asked here. `--block 0` makes it in one piece.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from tileseer.gpus import hardware
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels import candidates
from tileseer.kernels.ck_tile import kernel, resources
from tileseer.kernels.ck_tile.sweep import CkTileSweep
from tileseer.kernels.costs.coefficients import load_coefficients
from tileseer.learn import model
from tileseer.learn.features import Features, feature_sets
from tileseer.problems import problem, problem_sets
from tileseer.problems.operation import Operation

CONFIG = Path(__file__).parents[1] / "config"
REFERENCE = 450_000
"""Rows per CPU-second of the reference's batch extraction, measured with 97 features."""


def tables(operation: Operation):
    """Return problems, candidates and hardware of the shipped configuration."""
    product = hardware.read_hardware(CONFIG / "hardware.yaml", "gfx950_mi355x")
    entries = problem_sets.generate_problems(CONFIG / "problems/training.yaml", operation, (2, 3), seed=1)
    sweep = CkTileSweep.read_file(CONFIG / "rule_sets/sweep.yaml")
    specs = ArchSpecs.load(CONFIG / "arch_specs.json")
    pool = sweep.enumerate(specs, product.arch, operation, [2, 3])
    rows = kernel.frame(pool.kernels)[["kernel"]].assign(split_k=max(pool.split_k))
    table = candidates.with_fields(rows)
    estimate = resources.estimate(table, product, load_coefficients(CONFIG / "simulated_device.yaml"))
    table = table.assign(**{name: estimate[name] for name in candidates.RESOURCES})
    return problem.problem_frame([entry.problem for entry in entries]), table, product


def measure(tables, draws, block: int, feature_set: str) -> tuple[float, int]:
    """Return rows per CPU-second of one pass over the drawn pairs, and the number of features."""
    problems, pool, product = tables
    rows, columns = draws
    features = Features.of(feature_set, product)
    start = time.process_time()
    made_of = features.problem_columns(problems), features.candidate_columns(pool)
    for first in range(0, len(rows), block):
        part = slice(first, first + block)
        matrix = features.gather(*made_of, rows[part], columns[part])
    return len(rows) / (time.process_time() - start), matrix.shape[1]


def main() -> None:
    """Time several repetitions and print the slowest, median and fastest rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", default="forward_bf16", type=Operation.parse)
    parser.add_argument("--features", choices=list(feature_sets()), default="tileseer")
    parser.add_argument("--rows", default=1_000_000, type=int)
    parser.add_argument("--block", default=model.BLOCK, type=int, help="rows of a matrix; 0: all in one")
    parser.add_argument("--repeats", default=7, type=int)
    args = parser.parse_args()

    made = tables(args.operation)
    draw = np.random.default_rng(0)
    draws = draw.integers(0, len(made[0]), args.rows), draw.integers(0, len(made[1]), args.rows)
    results = [measure(made, draws, args.block or args.rows, args.features) for _ in range(args.repeats)]
    rates, width = [rate for rate, _ in results], results[0][1]
    middle = statistics.median(rates)
    print(
        f"{args.operation}, {args.features}: {args.rows:,} rows x {width} features, {args.block or args.rows:,} a time"
    )
    print(f"rows per CPU-second: min {min(rates):,.0f}, median {middle:,.0f}, max {max(rates):,.0f}")
    print(f"median / reference ({REFERENCE:,}): {middle / REFERENCE:.1f}")


if __name__ == "__main__":
    main()
