#!/usr/bin/env python3
"""Build what a real GPU is measured with: the measuring driver of an arch, or a chunk's kernels as a module for it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tileseer.compile import build, compiler
from tileseer.compile.libraries import Libraries
from tileseer.compile.registry import Trees, store_of, tree_of
from tileseer.core import bundle, parquet
from tileseer.core.atomic import write_bytes
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.families.kernels import parse
from tileseer.settings.compile import CacheSettings, CkSettings, CompileSettings, CutlassSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Write a module with every kernel of a chunk that was built, or the driver if no chunk is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--native", required=True, type=Path, help="folder of driver and launchers (workflow/native)")
    parser.add_argument("--headers", type=Path, help="bundle of the chunk; without it, the driver is built")
    parser.add_argument("--build", type=Path, help="build table of the chunk")
    parser.add_argument("--settings", default="{}", help="section compile of config.yaml as JSON")
    parser.add_argument("--ck", default="{}", help="section ck of config.yaml as JSON")
    parser.add_argument("--cutlass", default="{}", help="section cutlass of config.yaml as JSON")
    parser.add_argument("--output", required=True, type=Path, help="shared library to write")
    args = parser.parse_args(argv)
    if (args.headers is None) != (args.build is None):
        raise UserError("--headers and --build belong together: give both for a module, none for the driver")

    settings = CompileSettings.from_json(args.settings)
    if settings.toolchain == "none":
        raise UserError("compile.toolchain is none, which builds no libraries; write hipcc or nvcc")
    trees = Trees(CkSettings.from_json(args.ck), CutlassSettings.from_json(args.cutlass))
    store = store_of(CacheSettings.from_json(os.environ.get("TILESEER_CACHE", "{}")))
    tree = tree_of(settings, args.arch, trees)
    libraries = Libraries(compiler.find(settings), tree, settings, store, args.native)
    if args.build is None:
        content, what = libraries.driver(args.arch), "measuring driver"
    else:
        rows = parquet.read(args.build)
        statuses = zip(rows["kernel"].to_pylist(), rows["build_status"].to_pylist(), strict=True)
        built = parse([name for name, status in statuses if status == "ok"])
        units = build.units(built, bundle.read(args.headers), args.arch, str(args.headers))
        content, what = libraries.module(units), f"module of {len(units)} kernels"
    write_bytes(args.output, content, sealed=True)
    print(f"{args.arch}: {what}, {len(content) / 2**20:.1f} MiB")


if __name__ == "__main__":
    raise SystemExit(main())
