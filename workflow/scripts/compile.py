#!/usr/bin/env python3
"""Compile one chunk of kernels, or estimate what they would cost; one Parquet row a kernel."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from tilewright import build, bundle, hardware, kernel_table, parquet
from tilewright.devices.coefficients import load_coefficients
from tilewright.errors import reports_user_errors
from tilewright.settings.compile import CompileSettings
from tilewright.toolchain.registry import Target, make


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
    parser.add_argument("--settings", default="{}", help="section compile of config.yaml as JSON")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--costs", required=True, type=Path, help="CPU seconds and memory of the builds, to write")
    args = parser.parse_args(argv)

    gpu = hardware.get(args.hardware, args.product)
    target = Target(args.arch, gpu, load_coefficients(args.coefficients))
    toolchain = make(CompileSettings.from_json(args.settings), target)
    rows = kernel_table.read_chunk(args.configs, args.chunk)
    units = build.units(rows, bundle.read(args.headers), args.arch, str(args.headers))
    table, costs = build.build(units, rows["split_k"].to_pylist(), toolchain)
    parquet.write(costs, args.costs)
    parquet.write(table, args.output)
    counts = Counter(table["build_status"].to_pylist())
    print(f"{args.arch} chunk {args.chunk}: " + ", ".join(f"{counts[status]} {status}" for status in sorted(counts)))


if __name__ == "__main__":
    raise SystemExit(main())
