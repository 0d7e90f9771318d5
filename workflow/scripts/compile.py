#!/usr/bin/env python3
"""Compile one chunk of kernels, or estimate what they would cost; one Parquet row a kernel."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path

from tileseer.compile import build
from tileseer.compile.registry import Target, Trees, make
from tileseer.configs import kernel_table
from tileseer.core import bundle, parquet
from tileseer.core.errors import reports_user_errors
from tileseer.families.coefficients import load_coefficients
from tileseer.gpu import hardware
from tileseer.settings.compile import CacheSettings, CkSettings, CompileSettings, CutlassSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read a bundle of headers and the rows of its kernels, write the build table of the chunk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--configs", required=True, type=Path)
    parser.add_argument("--chunk", required=True, type=int)
    parser.add_argument("--headers", required=True, type=Path, help="bundle of the chunk")
    parser.add_argument("--hardware", required=True, type=Path)
    parser.add_argument("--product", required=True, help="GPU product in the hardware table")
    parser.add_argument("--coefficients", required=True, type=Path)
    parser.add_argument("--native", required=True, type=Path, help="folder of the launchers (workflow/native)")
    parser.add_argument("--settings", default="{}", help="section compile of config.yaml as JSON")
    parser.add_argument("--ck", default="{}", help="section ck of config.yaml as JSON")
    parser.add_argument("--cutlass", default="{}", help="section cutlass of config.yaml as JSON")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--costs", required=True, type=Path, help="CPU seconds and memory of the builds, to write")
    args = parser.parse_args(argv)

    settings = CompileSettings.from_json(args.settings)
    gpu = hardware.get(args.hardware, args.product)
    trees = Trees(CkSettings.from_json(args.ck), CutlassSettings.from_json(args.cutlass))
    cache = CacheSettings.from_json(os.environ.get("TILESEER_CACHE", "{}"))
    target = Target(args.arch, gpu, load_coefficients(args.coefficients), trees, cache, args.native)
    toolchain = make(settings, target)
    rows = kernel_table.read_chunk(args.configs, args.chunk)
    units = build.units(kernel_table.kernels(rows), bundle.read(args.headers), args.arch, str(args.headers))
    table, costs = build.build(units, rows["split_k"].to_pylist(), toolchain, build.Limits())
    parquet.write(costs, args.costs)
    parquet.write(table, args.output)
    counts = Counter(table["build_status"].to_pylist())
    print(f"{args.arch} chunk {args.chunk}: " + ", ".join(f"{counts[status]} {status}" for status in sorted(counts)))


if __name__ == "__main__":
    raise SystemExit(main())
