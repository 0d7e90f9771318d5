#!/usr/bin/env python3
"""Keep a worker measuring until its plan or its time is at an end; a crash or a hang costs one pair.

The pair in flight is blamed: it gets one retry alone, then a row with its status, and the others go on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HANG_S = 30.0
"""Without a new pair for this long, the pair in flight hangs."""


def in_flight(path: Path) -> tuple[int, int] | None:
    """Return (problem, candidate) that the worker was at."""
    fields = path.read_text().split() if path.exists() else []
    return (int(fields[0]), int(fields[1])) if len(fields) >= 2 else None


def has_row(journal: Path, pair: tuple[int, int]) -> bool:
    """Return whether the pair has a row."""
    text = f"{pair[0]},{pair[1]},"
    return journal.exists() and any(line.startswith(text) for line in journal.open())


def main() -> int:
    """Run workers; return 0 when the last one ended well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", required=True, type=Path)
    parser.add_argument("--library", required=True, type=Path)
    parser.add_argument("--plan", required=True, type=Path)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--seconds", required=True, type=float)
    parser.add_argument("--mode", choices=("cold", "warm"), default="cold")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    args = parser.parse_args()

    end = time.monotonic() + args.seconds
    note = args.journal.with_suffix(".in_flight")
    failures: dict[tuple[int, int], int] = {}
    while (left := end - time.monotonic()) > 2:
        note.unlink(missing_ok=True)
        command = [args.worker, args.library, args.plan, args.journal, note, f"{left:.1f}", args.mode, args.dtype]
        process = subprocess.Popen(list(map(str, command)))
        last, since, hung = None, time.monotonic(), False
        while process.poll() is None:
            time.sleep(0.2)
            now = in_flight(note)
            if now != last:
                last, since = now, time.monotonic()
            if time.monotonic() - since > HANG_S:
                process.kill()
                hung = True
        process.wait()
        if process.returncode == 0:
            return 0
        pair = in_flight(note)
        print(f"worker ended with {process.returncode}, hung: {hung}, pair in flight: {pair}", file=sys.stderr)
        if pair is None:
            return 1
        failures[pair] = failures.get(pair, 0) + 1
        if failures[pair] > 1 and not has_row(args.journal, pair):
            status = "run_timeout" if hung else "crash"
            with args.journal.open("a") as journal:
                journal.write(f"{pair[0]},{pair[1]},{status},{process.returncode},0,,,,,,,0,0,0\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
