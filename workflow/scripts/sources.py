#!/usr/bin/env python3
"""Unpack all C++ of one operation into a folder, with what a build needs around the kernels."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.configs import kernel_table
from tileseer.core import bundle, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.families.registry import of_arch


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the bundles of all chunks and the kernel table, write headers, units, wrappers and registration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--configs", required=True, type=Path, help="kernel table (Parquet)")
    parser.add_argument("--bundles", required=True, type=Path, nargs="+", help="bundles of all chunks")
    parser.add_argument("--templates", required=True, type=Path, help="folder of C++ templates")
    parser.add_argument("--api", required=True, type=Path, help="table of CK Tile names (config/ck_api.yaml)")
    parser.add_argument("--level", default="", help="level of the API; the newest by default")
    parser.add_argument("--output", required=True, type=Path, help="folder to write")
    args = parser.parse_args(argv)

    kernels = kernel_table.kernels(parquet.read(args.configs))
    emit = of_arch(args.arch).part("emit")
    collections = emit.collection_files(kernels, args.arch, args.templates, args.api, args.level)
    bundle.unpack(args.bundles, args.output)
    for name, text in collections.items():
        write_text(args.output / name, text)
    print(f"{args.arch}: {len(kernels)} kernels and {len(collections)} collection files in {args.output}")


if __name__ == "__main__":
    raise SystemExit(main())
