#!/usr/bin/env python3
"""Bring the journals of all chunks together into one dataset; malformed lines go to a quarantine file."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.benchmark import chosen_pairs
from tileseer.compile import aliases
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.dataset import assembly


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read build, support and receipt of every chunk, write the dataset and the quarantine file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--operation", required=True)
    parser.add_argument("--problems", required=True, type=Path)
    parser.add_argument("--build", required=True, type=Path, nargs="+", help="build tables, one a chunk")
    parser.add_argument("--support", required=True, type=Path, nargs="+", help="support tables, one a chunk")
    parser.add_argument("--receipts", required=True, type=Path, nargs="+", help="receipts, one a chunk")
    parser.add_argument("--aliases", type=Path, help="kernels that show what was measured of another one")
    parser.add_argument("--chosen", type=Path, help="pairs of training problems that were measured; without it, all")
    parser.add_argument("--memory-mib", type=int, default=assembly.MEMORY_MIB, help="memory of this stage")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--quarantine", required=True, type=Path, help="malformed lines (TSV) to write")
    args = parser.parse_args(argv)

    chunks = [assembly.Chunk(*files) for files in zip(args.build, args.support, args.receipts, strict=True)]
    chosen = chosen_pairs.read(args.chosen) if args.chosen else None
    known = aliases.read(args.aliases)
    problems = parquet.read(args.problems)
    rows, quarantine = assembly.write(
        chunks, problems, args.arch, args.operation, args.output, chosen, known, args.memory_mib
    )
    lines = [f"{q.journal}\t{q.line}\t{q.reason}\t{q.text}\n" for q in quarantine]
    write_text(args.quarantine, "journal\tline\treason\ttext\n" + "".join(lines))
    print(f"{args.arch} {args.operation}: {rows:,} rows, {len(quarantine):,} malformed lines in quarantine")


if __name__ == "__main__":
    raise SystemExit(main())
