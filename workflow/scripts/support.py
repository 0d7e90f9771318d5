#!/usr/bin/env python3
"""Decide on the CPU which pairs of one chunk's kernels and the problems can run: by our rules, or by the library."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pyarrow.compute as pc

from tileseer.compile.host_check import host_compiler
from tileseer.conv.operation import Operation
from tileseer.core import bundle, parquet
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.families import candidates
from tileseer.gpu import hardware
from tileseer.settings.compile import CacheSettings, CkSettings, CompileSettings, SupportSettings
from tileseer.support import library_support, support_table


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the build table of a chunk and the problems, write one row a pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--problems", required=True, type=Path)
    parser.add_argument("--hardware", required=True, type=Path)
    parser.add_argument("--product", required=True, help="GPU product in the hardware table")
    parser.add_argument("--settings", default="{}", help="section support of config.yaml as JSON")
    parser.add_argument("--headers", type=Path, help="bundle of the chunk; for the library's checks, as what follows")
    parser.add_argument("--compile", default="{}", help="section compile of config.yaml as JSON")
    parser.add_argument("--ck", default="{}", help="section ck of config.yaml as JSON")
    parser.add_argument("--native", type=Path, help="folder of hip_stand_in.cpp")
    parser.add_argument("--disagreements", type=Path, help="table to write: where the library and our rules differ")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    problems = parquet.read(args.problems).to_pandas()
    built = candidates.from_build(parquet.read(args.build))
    wave_size = hardware.get(args.hardware, args.product).wave_size
    library = None
    if SupportSettings.from_json(args.settings).source == "library":
        if None in (args.headers, args.native, args.disagreements):
            raise UserError("support.source is library: give --headers, --native and --disagreements")
        cache = CacheSettings.from_json(os.environ.get("TILESEER_CACHE", "{}"))
        ck = CkSettings.from_json(args.ck)
        host = host_compiler(CompileSettings.from_json(args.compile), ck, cache, args.native)
        library = library_support.verdicts(problems, built, bundle.read(args.headers), args.arch, host)
        differ = support_table.disagreements(problems, built, args.operation.variant, wave_size, library)
        parquet.write(differ, args.disagreements)
        print(f"the library and our rules differ on {differ.num_rows:,} pairs")
    table = support_table.table(problems, built, args.operation.variant, wave_size, library)
    parquet.write(table, args.output)
    supported = pc.sum(support_table.supported(table)).as_py() or 0
    print(f"{supported:,} of {table.num_rows:,} pairs can run")


if __name__ == "__main__":
    raise SystemExit(main())
