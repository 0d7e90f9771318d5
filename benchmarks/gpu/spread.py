#!/usr/bin/env python3
"""Spread benchmark jobs over the GPUs of a host, one job a GPU at a time, and say how the throughput grows.

Every job takes the lock of the first free GPU and sees that GPU only. The log has a line a job: GPU, begin, end,
pairs. The same jobs run once on one GPU and once on all of them; overlaps on one GPU are an error.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path


def jobs_of(plan: Path, folder: Path, count: int, problems: int) -> list[Path]:
    """Write ``count`` plans of ``problems`` problems each out of ``plan``."""
    lines = plan.read_text().splitlines()
    head = [line for line in lines if not line.startswith("M ")]
    pairs = [line for line in lines if line.startswith("M ")]
    paths = []
    for job in range(count):
        path = folder / f"job{job}.plan"
        path.write_text("\n".join(head + pairs[job * problems : (job + 1) * problems]) + "\n")
        paths.append(path)
    return paths


def run_job(
    worker: Path, library: Path, plan: Path, gpus: int, folder: Path, log: list[tuple[int, float, float, int]]
) -> None:
    """Wait for a free GPU, measure the plan on it, and note when."""
    gpu, lock = -1, None
    while lock is None:
        for gpu in range(gpus):
            stream = (folder / f"gpu{gpu}.lock").open("w")
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.close()
                continue
            lock = stream
            break
        else:
            time.sleep(0.05)
    journal = folder / f"{plan.stem}.{gpus}.csv"
    begin = time.monotonic()
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu)}
    command = [worker, library, plan, journal, journal.with_suffix(".in_flight"), "300", "cold", "bf16"]
    subprocess.run(list(map(str, command)), check=True, env=environment, capture_output=True)
    end = time.monotonic()
    lock.close()
    log.append((gpu, begin, end, len(journal.read_text().splitlines())))


def run(arguments: argparse.Namespace, gpus: int, plans: list[Path]) -> float:
    """Run all jobs on ``gpus`` GPUs; return pairs a second."""
    log: list[tuple[int, float, float, int]] = []
    threads = [
        threading.Thread(target=run_job, args=(arguments.worker, arguments.library, plan, gpus, arguments.folder, log))
        for plan in plans
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(log) != len(plans):
        raise SystemExit(f"{len(plans) - len(log)} jobs failed")
    start = min(begin for _, begin, _, _ in log)
    for gpu, begin, end, pairs in sorted(log, key=lambda job: job[1]):
        print(f"{gpus} GPUs: gpu {gpu} begin {begin - start:.3f} s end {end - start:.3f} s pairs {pairs}")
    for gpu in range(gpus):
        spans = sorted((begin, end) for g, begin, end, _ in log if g == gpu)
        overlaps = sum(later[0] < earlier[1] for earlier, later in pairwise(spans))
        print(f"{gpus} GPUs: gpu {gpu} ran {len(spans)} jobs, {overlaps} overlaps")
        if overlaps:
            raise SystemExit("two jobs used one GPU at a time")
    wall = max(end for _, _, end, _ in log) - start
    pairs = sum(job[3] for job in log)
    print(f"{gpus} GPUs: {pairs} pairs in {wall:.2f} s, {pairs / wall:.1f} pairs a second")
    return pairs / wall


def main() -> None:
    """Measure with one GPU and with all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", required=True, type=Path)
    parser.add_argument("--library", required=True, type=Path)
    parser.add_argument("--plan", required=True, type=Path)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--gpus", required=True, type=int)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--problems", type=int, default=20)
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    plans = jobs_of(args.plan, args.folder, args.jobs, args.problems)
    run(args, args.gpus, plans[:2])  # the GPUs wake up
    for journal in args.folder.glob("*.csv"):
        journal.unlink()
    one, every = run(args, 1, plans), run(args, args.gpus, plans)
    print(f"{args.gpus} GPUs give {every / one:.3f} times the throughput of one", file=sys.stderr)


if __name__ == "__main__":
    main()
