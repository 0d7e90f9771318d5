"""``tileseer compare``: the differences between two datasets, or between the picks of two models."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve import comparison

EXAMPLES = (
    "tileseer compare before.parquet after.parquet",
    "tileseer compare old/gfx950 new/gfx950 --measured results/datasets/gfx950/forward_bf16.parquet --json",
)
_LEFT_OUT = ("network", "layer")
"""Columns for which a terminal has no room."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("a", type=Path, metavar="A", help="a dataset (Parquet) or a model directory: before")
    parser.add_argument("b", type=Path, metavar="B", help="the same kind of thing: after")
    parser.add_argument(
        "--measured", type=Path, metavar="DATASET",
        help="for models: the dataset whose validation problems both pick for, and whose times judge the picks",
    )  # fmt: skip
    parser.add_argument("--top", type=int, default=10, help="rows of each table in the terminal (default: 10)")
    parser.epilog = "Exit status: 0 no difference, 1 a difference, 2 a mistake, 3 B is significantly slower than A."


def run(args: argparse.Namespace) -> int:
    """Print the comparison; return 0 without a difference and 1 with one, as diff does; 3 where B is slower."""
    found = _compare(args)
    status = 3 if found.is_slower else 1 if found.differs else 0
    return options.answer(args, found.record(), _report(found, args.top), status)


def _compare(args: argparse.Namespace) -> comparison.Comparison:
    for path in (args.a, args.b):
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder; give two model directories or two datasets")
    are_models = [(path / model_files.INDEX).exists() for path in (args.a, args.b)]
    if all(are_models):
        if args.measured is None:
            raise UserError("two model directories: add --measured DATASET, whose problems and times judge their picks")
        return comparison.compare_models(args.a, args.b, args.measured)
    if any(are_models):
        raise UserError(f"{args.a} and {args.b}: one is a model directory, the other is not; give two of a kind")
    if args.measured is not None:
        raise UserError("--measured is for model directories; two datasets bring their own times")
    return comparison.compare_datasets(args.a, args.b)


def lines(found: comparison.Comparison) -> list[tuple[str, str]]:
    """The figures as (name, text)."""
    return [(name.replace("_", " "), _text(value)) for name, value in found.figures.items()]


def _tables(found: comparison.Comparison) -> list[tuple[str, pd.DataFrame]]:
    titled = [("Problems", found.problems), ("Candidates", found.candidates), ("Changed status", found.statuses)]
    return [(title, table) for title, table in titled if len(table)]


def _rows(table: pd.DataFrame) -> dict[str, Any]:
    columns = [name for name in table.columns if name != "problem_key"]
    rows = table[columns].astype(object).to_numpy().tolist()
    words = {True: "yes", False: "no"}
    return {"columns": columns, "rows": [[words[c] if isinstance(c, bool) else c for c in row] for row in rows]}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " to ".join(_text(part) for part in value)
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _report(found: comparison.Comparison, top: int) -> Iterator[str]:
    yield f"{found.a.operation}: {found.what} compared; gains are positive: B is faster"
    for name, side in (("A", found.a), ("B", found.b)):
        yield f"{name}  {side.path}: {side.arch}, {side.device}, device kind: {side.device_kind}"
    yield from (f"  {name}: {value}" for name, value in lines(found))
    if not found.differs:
        yield "no difference" if found.what == "models" else "no difference beyond noise"
        return
    for title, table in _tables(found):
        half = max(top // 2, 1)
        shown = table if len(table) <= top else pd.concat([table.head(half), table.tail(top - half)])
        whole = len(table) == len(shown)
        rows = _rows(shown.drop(columns=[name for name in _LEFT_OUT if name in shown]))
        yield title if whole else f"{title}: the {half} largest losses and {top - half} gains"
        heads = [name.replace("_", " ") for name in rows["columns"]]
        yield from options.table_lines(heads, [[_text(cell) for cell in row] for row in rows["rows"]])
