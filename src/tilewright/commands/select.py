"""``tilewright select``: rank the kernels of a published model for one convolution."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from tilewright.errors import UserError
from tilewright.operation import DTYPES, VARIANTS
from tilewright.problem import DIMS, Problem
from tilewright.selection import NO_CANDIDATE, Selector


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json, of one arch")
    parser.add_argument("--variant", choices=VARIANTS, default="forward", help="direction (default: forward)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="data type (default: bf16)")
    parser.add_argument("--problem", metavar="N=8,C=64,...", help="dimensions in one word; options beside it win")
    for name in DIMS:
        parser.add_argument(f"--{name}", type=int, metavar="INT", help=argparse.SUPPRESS)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--top", type=_positive, default=5, help="how many candidates to show (default: 5)")
    shown.add_argument(
        "--confidence", type=float, metavar="SHARE",
        help="instead of --top: the smallest set that holds a candidate within 3 %% of the best so surely, as 0.9",
    )  # fmt: skip
    parser.add_argument(
        "--no-known", action="store_true", help="do not look the problem up in the table of measured problems"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.epilog = f"Dimensions, each also an option (--N 8): {', '.join(DIMS)}. C and K are totals over the groups."


def run(args: argparse.Namespace) -> int:
    """Print the ranking and where the model's times came from; return 1 if nothing supports the problem."""
    dims = parse_dims(args.problem) if args.problem else {}
    dims |= {name: getattr(args, name) for name in DIMS if getattr(args, name) is not None}
    if not dims:
        raise UserError("no problem given: use --problem N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3 or --N 8 --C 64 ...")
    problem = Problem.from_dims(args.variant, args.dtype, **dims)
    selector = Selector.load(args.models, f"{args.variant}_{args.dtype}")
    if args.confidence is None:
        ranked = selector.rank(problem, args.top)
    else:
        ranked = selector.guaranteed(problem, args.confidence)
    measured = NO_CANDIDATE if args.no_known else selector.known_row(problem)
    if args.json:
        _print_json(selector, problem, ranked, measured)
    else:
        print(f"{selector.operation} on {selector.arch} ({selector.device}), device kind: {selector.device_kind}")
        if measured != NO_CANDIDATE:
            best = selector.candidates["candidate"].iloc[measured]
            print(f"fastest measured on exactly this problem ({selector.device_kind}): {best}")
        _print_table(ranked)
    if ranked.empty:
        print(f"no candidate supports the problem; the pool has {len(selector.candidates)}", file=sys.stderr)
    return int(ranked.empty)


def parse_dims(text: str) -> dict[str, int]:
    """Read ``N=8,C=64``; a ``UserError`` names the wrong part. Names are checked by ``Problem.from_dims``."""
    dims: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not (value.isascii() and value.isdigit()):
            raise UserError(f"--problem: {part!r}: write NAME=NUMBER, for example N=8")
        if name in dims:
            raise UserError(f"--problem: {name} is given twice")
        dims[name] = int(value)
    return dims


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _print_json(selector: Selector, problem: Problem, ranked: pd.DataFrame, measured: int) -> None:
    content = {
        "operation": selector.operation,
        "arch": selector.arch,
        "device": selector.device,
        "device_kind": selector.device_kind,
        "problem": {name: getattr(problem, name) for name in DIMS},
        "fastest_measured": None if measured == NO_CANDIDATE else selector.candidates["candidate"].iloc[measured],
        "candidates": ranked.to_dict(orient="records"),
    }
    print(json.dumps(content, indent=2))


def _print_table(ranked: pd.DataFrame) -> None:
    """Print with rich on a terminal, as aligned plain text elsewhere."""
    columns = [name for name in ("rank", "predicted_efficiency", "score", "split_k", "kernel") if name in ranked]
    rows = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in ranked[columns].values]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*columns)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _cell(name: str, value: object) -> str:
    if name == "predicted_efficiency":
        return f"{value:.1f} %"
    return f"{value:.4f}" if name == "score" else str(value)
