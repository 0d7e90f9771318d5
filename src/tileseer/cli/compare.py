"""``tileseer compare``: the differences between two datasets, or between the picks of two models."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve.comparison import Comparison, compare_datasets, compare_models

EXAMPLES = (
    "tileseer compare before.parquet after.parquet",
    "tileseer compare old/gfx950 new/gfx950 --measured results/datasets/gfx950/forward_bf16.parquet --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("a", type=Path, metavar="A", help="a dataset (Parquet) or a model directory: before")
    parser.add_argument("b", type=Path, metavar="B", help="the same kind of thing: after")
    meaning = "for models: the dataset whose validation problems and times are used to compare the picks"
    parser.add_argument("--measured", type=Path, metavar="DATASET", help=meaning)
    parser.add_argument("--top", type=int, default=10, help="rows of each table in the terminal (default: 10)")
    parser.epilog = "Exit status: 0 no difference, 1 a difference, 2 a mistake, 3 B is significantly slower than A."


def run(args: argparse.Namespace) -> int:
    """Print the comparison; return 0 without a difference and 1 with one, as diff does; 3 where B is slower."""
    comparison = _compare(args)
    status = 3 if comparison.is_slower else 1 if comparison.differs else 0
    return options.answer(args, comparison.record(), _lines(comparison, args.top), status)


def _compare(args: argparse.Namespace) -> Comparison:
    for path in (args.a, args.b):
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder; name two model directories or two datasets")
    are_models = [(path / model_files.INDEX).exists() for path in (args.a, args.b)]
    if all(are_models):
        if args.measured is None:
            raise UserError("two model directories: add --measured DATASET, whose problems and times compare the picks")
        return compare_models(args.a, args.b, args.measured)
    if any(are_models):
        raise UserError(f"{args.a} and {args.b}: one is a model directory, the other is not; name two of the same kind")
    if args.measured is not None:
        raise UserError("--measured is for model directories; two datasets bring their own times")
    return compare_datasets(args.a, args.b)


def _lines(comparison: Comparison, top: int) -> Iterator[str]:
    yield f"{comparison.a.operation}: {comparison.what} compared; gains are positive: B is faster"
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        yield f"{name}  {side.path}: {side.arch}, {side.device}, device kind: {side.device_kind}"
    yield from (f"  {name.replace('_', ' ')}: {_text(value)}" for name, value in comparison.figures.items())
    if not comparison.differs:
        yield "no difference" if comparison.what == "models" else "no difference beyond noise"
        return
    tables = {"Problems": comparison.problems, "Candidates": comparison.candidates}
    for title, table in {**tables, "Changed status": comparison.statuses}.items():
        half = max(top // 2, 1)
        shown = table if len(table) <= top else pd.concat([table.head(half), table.tail(top - half)])
        # A terminal has no room for the names.
        shown = shown.drop(columns=["problem_key", "network", "layer"], errors="ignore")
        shown.columns = [str(name).replace("_", " ") for name in shown.columns]
        if len(table):
            whole = len(table) == len(shown)
            yield title if whole else f"{title}: the {half} largest losses and {top - half} gains"
            yield from options.table_lines(
                [{str(name): _text(value) for name, value in row.items()} for row in shown.to_dict("records")]
            )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " to ".join(_text(part) for part in value)
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
