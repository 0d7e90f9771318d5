#!/usr/bin/env python3
"""Collect the problems of one operation: generated ones to train on, layers of real networks to validate on."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright import parquet, problem_sets, problem_table
from tilewright.errors import UserError, reports_user_errors
from tilewright.operation import Operation
from tilewright.settings.problems import ProblemsSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read generator files and the table of layers, write one Parquet row a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--ndims", required=True, help="comma-separated, for example 2,3")
    parser.add_argument("--settings", default="{}", help="section problems of config.yaml as JSON")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args(argv)

    settings = ProblemsSettings.from_json(args.settings)
    ndims = tuple(int(ndim) for ndim in args.ndims.split(","))
    validation = problem_sets.read_networks(Path(settings.validation), args.operation, ndims)
    if len(validation) < settings.min_validation:
        raise UserError(
            f"{settings.validation}: {len(validation)} problems, but problems.min_validation asks for "
            f"{settings.min_validation}; add layers or lower it"
        )
    generated = {
        entry.problem.key: entry
        for path in settings.training
        for entry in problem_sets.generate(Path(path), args.operation, ndims, settings.seed)
    }
    training = problem_sets.hold_out(list(generated.values()), validation)
    problem_sets.assert_disjoint(training, validation)
    parquet.write(problem_table.table(training, validation), args.output)
    print(
        f"{args.operation}: {len(training)} problems to train on ({len(generated) - len(training)} left out: "
        f"same layer family as a validation problem), {len(validation)} to validate on"
    )


if __name__ == "__main__":
    raise SystemExit(main())
