#!/usr/bin/env python3
"""Why a pair has two times: one pair of the recording, measured over and over, in every way that may matter.

The pair is the sentinel of a job whose time jumped between 54 and 59 µs (docs/internals/results.md). Each line is one
measurement: its median, launches a sample, clock after the samples, and the way it was measured in:

again      one after the other, by one worker
worker     by a new worker each time
larger     by a new worker that measured a larger problem before, so that the operands lie in other memory
heavy      right after a second of a kernel at full power, and after a pause
between    after pairs of other problems, as the sentinel of a job is, and after a pause
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.config.benchmark import Timing
from tileseer.core.errors import reports_user_errors
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options, problem_numbers
from tileseer.measure.harness.telemetry import boards

RECORDING = Path(__file__).parents[2] / "config/recorded/sm_90/bwd_data_bf16"
KERNEL = "cutlass_conv_bwd_data_bf16_nhwc_2d_optimized_128x64x32_2x2x1_16x8x16_s4_swz1_vec2_2_2_strided"
PROBLEM = "8a0762c35e5aed85"
PAUSE_S = 2.0
HOT_S = 1.0


class Bench:
    """The pairs of one module, measured by a worker."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args, self._timing = args, Timing.model_validate_json(args.settings)
        self.problems = pd.read_parquet(RECORDING / "problems.parquet")
        kernels = pd.read_parquet(RECORDING / "kernels.parquet")["kernel"]
        pairs = pd.read_parquet(RECORDING / "pairs.parquet")
        pairs["kernel"] = kernels.to_numpy()[pairs["kernel"]]
        self.pairs = pairs[(pairs["status"] == "ok") & pairs["kernel"].isin(args.kernels)]
        self.row = int(np.flatnonzero(self.problems["problem_key"] == PROBLEM)[0])
        self.worker: Supervisor | None = None

    def renew(self) -> None:
        """Let the next pair find a new worker."""
        if self.worker is not None:
            self.worker.close()
        board = (boards("cuda") or [None])[0]
        self.worker = Supervisor(str(self._args.driver), board.environment if board else None, WorkerLimits())

    def measure(self, kernel: str, row: int, cache: int = 0) -> dict:
        """Return the result of one measurement."""
        problem = self.problems.iloc[row]
        options = launch_options(self._timing, 1 << 32 | int(problem["problem_key"][:8], 16))
        options |= {"rotate_bytes": 0, "cache": cache, "verify_millions": 0}
        numbers = problem_numbers(problem, str(problem["variant"]), 1)
        assert self.worker is not None
        outcome = self.worker.measure(Request((str(self._args.module),), kernel, numbers, options, verify=False))
        return dict(outcome.reply["result"]) if outcome.status == "ok" else {}

    def show(self, way: str, cache: int = 0) -> float:
        """Measure the pair and print a line."""
        found = self.measure(KERNEL, self.row, cache)
        told = " ".join(f"{name} {found[name]:g}" for name in ("launches_per_sample", "samples", "copies", "settle_ms"))
        print(
            f"{way:16} {1000 * found['median_ms']:8.2f} us noise {100 * found['noise']:.2f} %  {told} "
            f"clock {found['clock_mhz']:.0f}",
            flush=True,
        )
        return found["median_ms"]


def by_time(bench: Bench) -> tuple[int, int]:
    """Return the rows of the problems that take longest and that need most memory, of one kernel's pairs."""
    mine = bench.pairs[bench.pairs["kernel"] == KERNEL]
    sizes = bench.problems[["N", "C", "K"]].prod(axis=1) * bench.problems[["Hi", "Wi"]].prod(axis=1)
    long = mine.sort_values("median_us").iloc[-1]["problem"]
    return int(long), int(sizes.loc[mine["problem"]].idxmax())


@reports_user_errors
def main() -> None:
    """Measure in each way and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True, type=Path)
    parser.add_argument("--module", required=True, type=Path, help="library with the kernel")
    parser.add_argument("--build", required=True, type=Path, help="build table of the library")
    parser.add_argument("--settings", default="{}", help="parameters of timing as JSON")
    parser.add_argument("--times", type=int, default=12)
    args = parser.parse_args()
    args.driver, args.module = args.driver.resolve(), args.module.resolve()
    args.kernels = pd.read_parquet(args.build, columns=["kernel"])["kernel"].tolist()
    bench = Bench(args)
    heavy, large = by_time(bench)
    others = bench.pairs.sample(frac=1, random_state=1)
    others = others[others["median_us"] < 1000]

    bench.renew()
    for cache, way in ((0, "again, cold"), (1, "again, warm")):
        for _ in range(args.times):
            bench.show(way, cache)
    for _ in range(args.times):
        bench.renew()
        bench.show("worker")
    for _ in range(args.times):
        bench.renew()
        bench.measure(KERNEL, large)
        bench.show("larger")
    bench.renew()
    for _ in range(args.times // 3):
        until = time.monotonic() + HOT_S
        while time.monotonic() < until:
            bench.measure(KERNEL, heavy)
        bench.show("heavy")
        time.sleep(PAUSE_S)
        bench.show("heavy, pause")
    bench.renew()
    for part in np.array_split(np.arange(30 * args.times), args.times):
        for i in part:
            bench.measure(str(others["kernel"].iloc[i]), int(others["problem"].iloc[i]))
        for _ in range(2):
            bench.show("between")
        time.sleep(PAUSE_S / 4)
        bench.show("between, pause")


if __name__ == "__main__":
    main()
