#!/usr/bin/env python3
"""Enumerate the kernels of one arch and operation: one Parquet row a kernel, and the plan of chunks."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.configs import kernel_filter, kernel_table, plan
from tileseer.conv.operation import Operation
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.families.enumeration import rejected_text
from tileseer.families.registry import of_arch
from tileseer.gpu.arch import ArchSpecs
from tileseer.settings.inputs import ConfigsSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read arch specs and rule set, write the kernels, the refused combinations and the plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--arch-specs", required=True, type=Path)
    parser.add_argument("--settings", default="{}", help="section configs of config.yaml as JSON")
    parser.add_argument("--kernels", required=True, type=Path, help="Parquet file to write")
    parser.add_argument("--rejected", required=True, type=Path, help="refused combinations (TSV) to write")
    parser.add_argument("--plan", required=True, type=Path, help="plan of chunks (TSV) to write")
    args = parser.parse_args(argv)

    settings = ConfigsSettings.from_json(args.settings)
    specs = ArchSpecs.load(args.arch_specs)
    result = (
        of_arch(args.arch)
        .part("rules")
        .enumerate_kernels(
            Path(settings.rule_set), specs, args.arch, args.operation, settings.ndims, settings.include_flagged
        )
    )
    if settings.filter:
        result = kernel_filter.narrowed(result, settings.filter, "configs.filter")
    rows = kernel_table.table(result.kernels, result.split_k, settings.chunks)
    parquet.write(rows, args.kernels)
    write_text(args.rejected, rejected_text(result.rejected))
    write_text(args.plan, plan.text(kernel_table.planned(rows)), sealed=True)
    print(f"{args.arch} {args.operation}: {len(result.kernels)} kernels, {len(result.rejected)} combinations refused")


if __name__ == "__main__":
    raise SystemExit(main())
