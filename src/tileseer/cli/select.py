"""``tileseer select``: rank the kernels of a published model for one convolution."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from tileseer.cli import options
from tileseer.client.selection import NO_CANDIDATE, Selector
from tileseer.conv.problem import DIMS

EXAMPLES = (
    f"tileseer select results/models/gfx950 --problem {options.EXAMPLE} --top 3",
    "tileseer select results/models/gfx950 --variant bwd_data --N 8 --C 64 --K 64 --Hi 56 --Wi 56 --json",
    f"tileseer select results/models/gfx950 --problem {options.EXAMPLE} --confidence 0.9",
)
FORMS = {
    "rank": "{}", "predicted_efficiency": "{:.1f} %", "score": "{:.4f}", "split_k": "{}", "kernel": "{}"
}  # fmt: skip
"""The columns of the table, each with the form of its cells."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json, of one arch")
    options.add_problem(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--top", type=options.positive, default=5, help="how many candidates to show (default: 5)")
    shown.add_argument(
        "--confidence", type=float, metavar="SHARE",
        help="instead of --top: the smallest set with this probability of a candidate within 3 %% of the best",
    )  # fmt: skip
    parser.add_argument(
        "--no-known", action="store_true", help="do not look the problem up in the table of measured problems"
    )


def run(args: argparse.Namespace) -> int:
    """Print the ranking and where the model's times came from; return 1 if nothing supports the problem."""
    problem = options.problem(args)
    selector = Selector.load(args.models, f"{args.variant}_{args.dtype}")
    if args.confidence is None:
        ranked = selector.rank(problem, args.top)
    else:
        ranked = selector.guaranteed(problem, args.confidence)
    measured = NO_CANDIDATE if args.no_known else selector.known_row(problem)
    spec = selector.spec
    fastest = None if measured == NO_CANDIDATE else selector.pool["candidate"].iloc[measured]
    content = {
        "operation": spec.operation,
        "arch": spec.arch,
        "device": spec.device,
        "device_kind": spec.device_kind,
        "source": spec.source,
        "problem": {name: getattr(problem, name) for name in DIMS},
        "fastest_measured": fastest,
        "candidates": ranked.to_dict(orient="records"),
    }
    lines = [f"{spec.operation} on {spec.arch} ({spec.device}), device kind: {spec.device_kind}"]
    if spec.source is not None:
        lines.append(f"times of others: {spec.source}")
    if fastest is not None:
        lines.append(f"fastest measured on exactly this problem ({spec.device_kind}): {fastest}")
    if ranked.empty:
        print(f"no candidate supports the problem; the pool has {len(selector.pool)}", file=sys.stderr)
    return options.answer(args, content, [*lines, *_table(ranked)], ranked.empty)


def _table(ranked: pd.DataFrame) -> list[str]:
    columns = [name for name in FORMS if name in ranked]
    rows = [[FORMS[name].format(row[name]) for name in columns] for row in ranked.to_dict("records")]
    return options.table_lines(columns, rows)
