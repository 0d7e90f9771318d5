#!/usr/bin/env python3
"""How fast ``tileseer codegen`` writes the whole ``full`` set of gfx950, and how fast it sees that nothing changed.

The set: all directions, 2D and 3D, three data types, flagged kernels included: 14,048 kernels. The figures of the
reference generator for the same set were taken on two cores and a memory file system, 11.7 to 12.5 s.
Each run is a process of its own, start included; a memory file system keeps the disk out. CPU seconds are those of
the process and its children: on a busy machine they say more than the wall clock. The last column compares them with
the reference's wall seconds, which is what one core would gain at least: its work is bound to one Python thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
REFERENCE_KERNELS, REFERENCE_SECONDS = 14048, 11.7
"""The reference's best run."""
ARCH = "gfx950"


def timed(command: list[str]) -> tuple[float, float, str]:
    """Run a command; return wall seconds, CPU seconds and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, output.strip()


def codegen(output: Path, *options: str) -> list[str]:
    """Return the command that emits ``full`` below ``output``."""
    return [
        sys.executable, "-m", "tileseer.cli.main", "codegen", "--arch", ARCH, "--rule-set", "full", "--include-flagged",
        "all", "--output", str(output), *options,
    ]  # fmt: skip


def kernels_in(folder: Path) -> int:
    """Return how many kernels a folder holds: each has one unit that no collection has."""
    return sum(path.name.startswith("grouped_conv_") for path in (folder / ARCH).glob("*.cpp"))


def show(what: str, kernels: int, wall: float, cpu: float) -> None:
    """Print one line of the table."""
    rate = kernels / wall
    reference = REFERENCE_KERNELS / REFERENCE_SECONDS
    ratios = f"{rate / reference:>10.1f}{kernels / cpu / reference:>8.1f}"
    print(f"{what:<28}{kernels:>8}{wall:>9.2f}{cpu:>9.2f}{rate:>12.0f}{ratios}")


def main() -> None:
    """Print a table: the whole set afresh, again, with one file lost, and in growing parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    memory = Path("/dev/shm")
    parser.add_argument("--folder", type=Path, default=memory if memory.is_dir() else None, help="where to write")
    parser.add_argument("--runs", type=int, default=3, help="of each kind; the fastest is shown (default: 3)")
    args = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; reference: {REFERENCE_SECONDS} s")
    print(f"{'what':<28}{'kernels':>8}{'wall s':>9}{'CPU s':>9}{'kernels/s':>12}{'reference':>10}{'by CPU':>8}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        target = Path(folder) / "out"
        growth = [("forward",), ("bwd_weight",), ("forward", "bwd_data", "bwd_weight")]
        for variants in growth:
            fresh = []
            for _ in range(args.runs):
                shutil.rmtree(target, ignore_errors=True)
                fresh.append(timed(codegen(target, "--variant", *variants))[:2])
            show(f"afresh, {variants[0] if len(variants) == 1 else 'all'}", kernels_in(target), *min(fresh))
        again = [timed(codegen(target, "--variant", *growth[-1]))[:2] for _ in range(args.runs)]
        show("nothing changed", kernels_in(target), *min(again))
        lost = []
        for _ in range(args.runs):
            next((target / ARCH).glob("grouped_conv_*.hpp")).unlink()
            lost.append(timed(codegen(target, "--variant", *growth[-1]))[:2])
        show("one file lost", kernels_in(target), *min(lost))


if __name__ == "__main__":
    main()
