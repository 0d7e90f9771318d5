#!/usr/bin/env python3
"""Time the main job: a first run in an empty folder, and a second one that has nothing to do.

Copies the workflow into a temporary folder, so that results at hand are neither used nor touched. Prints wall
seconds, CPU seconds and the largest memory that the whole tree of processes held together.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "config", "envs", "profiles", "src", "workflow")


def resident_kib(group: int) -> int:
    """Return the proportional memory of all processes of a process group: shared pages count once."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, ValueError):
            # The process has ended meanwhile.
            continue
    return total


def timed(command: list[str], folder: Path) -> dict[str, float]:
    """Run a command to its end; return wall_s, cpu_s and peak_gib of its whole tree."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with (folder / "run.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        peak, done = [0], threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                peak[0] = max(peak[0], resident_kib(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = process.wait()
        done.set()
        watcher.join()
    wall = time.monotonic() - start
    if status:
        sys.exit(f"error: {' '.join(command)} ended with status {status}\n{(folder / 'run.log').read_text()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall, "cpu_s": cpu, "peak_gib": peak[0] / 2**20}


def main() -> None:
    """Run the main job twice and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="results/models/gfx950")
    args = parser.parse_args()
    command = ["snakemake", "--cores", "all", args.target]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in PARTS:
            source = ROOT / part
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            (shutil.copytree(source, folder / part, ignore=ignore) if source.is_dir() else shutil.copy(source, folder))
        print(f"{'run':<20}{'wall s':>10}{'CPU s':>10}{'peak GiB':>10}")
        for label in ("first", "nothing to do"):
            figures = timed(command, folder)
            print(f"{label:<20}{figures['wall_s']:>10.1f}{figures['cpu_s']:>10.1f}{figures['peak_gib']:>10.2f}")
        if "Nothing to be done" not in (folder / "run.log").read_text():
            sys.exit("error: the second run had something to do")


if __name__ == "__main__":
    main()
