#!/usr/bin/env python3
"""Memory of the benchmark stage by the measurements of one chunk: python benchmarks/benchmark_stage.py

A device that answers at once fills the journal of a chunk; then another run counts what is there, and the journal of
another chunk takes everything over. The times are made up. Each step is a process of its own.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.benchmark import journal, receipt, run
from tileseer.conv.problem import Problem
from tileseer.devices.base import Times
from tileseer.problems import problem_table
from tileseer.problems.problem_sets import Entry

PROBLEMS = 1000
STEPS = {"measure": "0.csv", "count": "0.csv", "take over": "1.csv"}


class Instant:
    """A device without a kernel."""

    name, kind, largest_batch, order_seed = "none", "simulated", 10**9, None

    def identity(self) -> str:
        """Nothing that a time could depend on."""
        return ""

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Made-up times."""
        count = len(problem_index)
        return Times(
            np.zeros(count, np.uint8), np.linspace(0.1, 2, count), np.full(count, 0.01), np.full(count, 10, np.int32)
        )


def step(folder: Path, name: str, pairs: int, memory_mib: int) -> None:
    """One step; prints a row of the table."""
    shapes = [(8 * c, 64 * k, s) for c in range(1, 11) for k in range(1, 11) for s in range(7, 17)]
    entries = [Entry(Problem.from_dims("forward", "bf16", C=c, K=k, Hi=s, Wi=s), "grid", "") for c, k, s in shapes]
    problems = problem_table.table(entries[:PROBLEMS], [])
    kernels = pairs // PROBLEMS
    ids = [f"{number:016x}" for number in range(kernels)]
    candidates = pd.DataFrame({"kernel": [f"kernel_{i}" for i in ids], "kernel_id": ids, "split_k": 1})
    wanted = pa.table(
        {
            "kernel_id": pa.array(ids).take(pa.array(np.repeat(np.arange(kernels), PROBLEMS))),
            "split_k": pa.array(np.ones(kernels * PROBLEMS), pa.int32()),
            "problem_key": problems["problem_key"].cast(pa.string()).take(np.tile(np.arange(PROBLEMS), kernels)),
        }
    )
    batch = run.Batch("gfx950", "forward", 1, Instant(), problems.to_pandas(), candidates)
    path, account, begin = folder / STEPS[name], receipt.Account(), time.process_time()
    with journal.Journal(path) as book:
        filled = run.fill(batch, wanted, path, book, memory_mib, batch_pairs=20_000)
    for part, measured in run.parts(batch, wanted, path, memory_mib):
        account.add(receipt.counted(measured, part))
    if account.pairs != kernels * PROBLEMS or filled.done != (account.pairs if name == "measure" else 0):
        raise SystemExit(f"error: {account.pairs} pairs, {filled.done} of them measured")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"| {account.pairs:,} | {name} | {memory_mib:,} | {time.process_time() - begin:.1f} | {peak:,} |", flush=True)


def main() -> None:
    """Print the table, or one row of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=int, nargs="+", default=[200_000, 1_000_000, 2_000_000])
    parser.add_argument("--memory-mib", type=int, default=1024)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        step(args.folder, args.step, args.measurements[0], args.memory_mib)
        return
    print("| measurements | step | `memory_mib` | CPU s | memory, MiB |\n|---|---|---|---|---|", flush=True)
    for pairs in args.measurements:
        with tempfile.TemporaryDirectory(prefix="tileseer-scale-") as folder:
            for name in STEPS:
                words = ["--step", name, "--folder", folder, "--measurements", str(pairs)]
                words += ["--memory-mib", str(args.memory_mib)]
                subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
