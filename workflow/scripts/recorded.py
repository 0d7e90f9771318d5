#!/usr/bin/env python3
"""Replay what a real GPU measured: one operation of a recording as a dataset."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.conv.operation import Operation
from tileseer.core import parquet
from tileseer.core.errors import reports_user_errors
from tileseer.dataset import recording
from tileseer.gpu import hardware


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a recording, write the dataset of one operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", required=True, type=Path, help="folder with recording.json")
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--hardware", required=True, type=Path, help="table of GPU products")
    parser.add_argument("--product", required=True, help="product of that table that the times belong to")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    product = hardware.get(args.hardware, args.product)
    table = recording.dataset(args.recording, args.operation, product)
    parquet.write(table, args.output)
    counts = table["status"].combine_chunks().value_counts().to_pylist()
    found = ", ".join(f"{count['counts']:,} {count['values']}" for count in counts)
    print(f"{args.recording} {args.operation} (recorded): {found}")


if __name__ == "__main__":
    raise SystemExit(main())
