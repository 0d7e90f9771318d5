#!/usr/bin/env python3
"""Find the kernels with the same machine code: one of them is measured for all."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.compile import aliases
from tileseer.core import parquet
from tileseer.core.errors import reports_user_errors
from tileseer.support import support_table


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read build and support tables of all chunks, write one row an alias."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, type=Path, nargs="+", help="build tables, one a chunk")
    parser.add_argument("--support", required=True, type=Path, nargs="+", help="support tables, one a chunk")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    pairs = (parquet.read(path) for path in args.support)
    supported = [part.filter(support_table.supported(part)) for part in pairs]
    table = aliases.table([parquet.read(path) for path in args.build], supported)
    parquet.write(table, args.output)
    print(f"{table.num_rows:,} kernels have the code of another one and are not measured themselves")


if __name__ == "__main__":
    raise SystemExit(main())
