"""``tileseer stale``: which picks went stale, or what to measure again first."""

import argparse
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.client import staleness
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError

EXAMPLES = (
    "tileseer stale old.HIP.fdb.txt new.HIP.fdb.txt --output stale.csv",
    "tileseer stale config/recorded/gfx942_miopen --model results/models/gfx942_miopen --budget 500 --output again.csv",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("old", type=Path, metavar="OLD", help="a recording's folder, a dataset or a find-db")
    parser.add_argument("new", type=Path, nargs="?", metavar="NEW", help="the same GPU, measured later")
    parser.add_argument("--model", type=Path, metavar="DIR", help="without NEW: published models of OLD's kernels")
    parser.add_argument("--budget", type=options.positive, metavar="PAIRS", help="without NEW: how many pairs to name")
    parser.add_argument("--top", type=options.positive, default=10, help="rows to print (default: 10)")
    parser.add_argument("--output", type=Path, metavar="CSV", help="also write all rows")


def run(args: argparse.Namespace) -> int:
    """Print figures and the first rows; write all of them with ``--output``."""
    if sum(value is not None for value in (args.model, args.budget)) != (2 if args.new is None else 0):
        raise UserError("give NEW, or --model and --budget: what is to be measured again is asked without NEW")
    for path in filter(None, (args.old, args.new)):
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder")
    old = staleness.times(args.old)
    if args.new is None:
        rows = staleness.first(old, args.model, args.budget)
        lines = [f"{len(rows):,} of {len(old):,} pairs to measure again, first those that may change a pick"]
        figures: dict[str, Any] = {"pairs": len(rows), "measured": len(old)}
    else:
        found = staleness.compare(old, staleness.times(args.new))
        rows, figures, kept = found.picks, found.figures, found.figures["efficiency"]
        low, high = found.figures["interval"]
        lines = [
            f"{figures['stale']:,} of {figures['problems']:,} picks are stale; old picks keep {kept['mean']:.2f} % of "
            f"the speed ({low:.2f} to {high:.2f}), median {kept['median']:.2f}, P10 {kept['p10']:.2f}"
        ]
    if args.output:
        write_text(args.output, rows.to_csv(index=False))
    shown = rows.head(args.top)
    words = ["operation", "problem_key", *(name for name in ("old", "new", "candidate") if name in rows)]
    numbers = [name for name in ("efficiency", "ms", "behind") if name in rows]
    cells = [[*row[:-len(numbers)], *(f"{value:.4f}" for value in row[-len(numbers):])]
             for row in shown[[*words, *numbers]].itertuples(index=False)]  # fmt: skip
    content = {"figures": figures, "rows": shown.astype(object).to_dict("records")}
    return options.answer(args, content, [*lines, *options.table_lines([*words, *numbers], cells)])
