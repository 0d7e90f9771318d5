#!/usr/bin/env python3
"""Decide on the CPU which pairs of one chunk's kernels and the problems can run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.compute as pc

from tilewright import candidates, hardware, parquet, support_table
from tilewright.errors import reports_user_errors
from tilewright.operation import Operation


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the build table of a chunk and the problems, write one row a pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--problems", required=True, type=Path)
    parser.add_argument("--hardware", required=True, type=Path)
    parser.add_argument("--product", required=True, help="GPU product in the hardware table")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    table = support_table.table(
        parquet.read(args.problems).to_pandas(),
        candidates.from_build(parquet.read(args.build)),
        args.operation.variant,
        hardware.get(args.hardware, args.product).wave_size,
    )
    parquet.write(table, args.output)
    supported = pc.sum(support_table.supported(table)).as_py() or 0
    print(f"{supported:,} of {table.num_rows:,} pairs can run")


if __name__ == "__main__":
    raise SystemExit(main())
