#!/usr/bin/env python3
"""Collect the problems of one operation: those to train on, and layers of unseen networks to validate on."""

from __future__ import annotations

import argparse
from pathlib import Path

from tileseer.conv.operation import Operation
from tileseer.core import parquet
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.problems import problem_table, training_set
from tileseer.settings.inputs import ProblemsSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the tables of layers and generator files, write one Parquet row a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--ndims", required=True, help="comma-separated, for example 2,3")
    parser.add_argument("--settings", default="{}", help="section problems of config.yaml as JSON")
    parser.add_argument("--uses", required=True, type=Path, help="which run of a network needs which problem")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    settings = ProblemsSettings.from_json(args.settings)
    ndims = tuple(int(ndim) for ndim in args.ndims.split(","))
    chosen = training_set.collect(settings, args.operation, ndims)
    if len(chosen.validation) < settings.min_validation:
        raise UserError(
            f"{settings.validation}: {len(chosen.validation)} problems for {args.operation}, fewer than the "
            f"{settings.min_validation} that problems.validation_problems: {settings.validation_problems} needs; add "
            "layers, lower it, or set it to 0 for all that there are"
        )
    parquet.write(problem_table.table(chosen.training, chosen.validation), args.output)
    parquet.write(problem_table.uses(chosen.runs, args.operation, chosen.nearest), args.uses)
    print(
        f"{args.operation}: {len(chosen.training)} problems to train on ({chosen.held_out} left out: same layer family "
        f"as a validation problem), {len(chosen.validation)} of {len(chosen.runs)} runs of networks to validate on"
    )


if __name__ == "__main__":
    raise SystemExit(main())
