#!/usr/bin/env python3
"""Emit the C++ files of one chunk of kernels as one bundle."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.configs import kernel_table
from tileseer.core import bundle
from tileseer.core.errors import reports_user_errors
from tileseer.families.registry import of_arch


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the chunk's rows of the kernel table, write a bundle of the C++ files of its kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", required=True, type=Path, help="kernel table (Parquet)")
    parser.add_argument("--chunk", required=True, type=int)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--templates", required=True, type=Path, help="folder of C++ templates")
    parser.add_argument("--api", required=True, type=Path, help="table of CK Tile names (config/ck_api.yaml)")
    parser.add_argument("--level", default="", help="level of the API; the newest by default")
    parser.add_argument("--output", required=True, type=Path, help="bundle (tar) to write")
    args = parser.parse_args(argv)

    kernels = kernel_table.kernels(kernel_table.read_chunk(args.configs, args.chunk))
    emit = of_arch(args.arch).part("emit")
    bundle.write(args.output, emit.files(kernels, args.arch, args.templates, args.api, args.level))
    print(f"chunk {args.chunk}: {len(kernels)} kernels for {args.arch}")


if __name__ == "__main__":
    raise SystemExit(main())
