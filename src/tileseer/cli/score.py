"""``tileseer score``: score any kernels on any problems, to judge a model by somebody else's measurements."""

import argparse
import sys
from pathlib import Path

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.problems.problem import DIMS
from tileseer.serve import scoring

EXAMPLES = ("tileseer score results/models/gfx950 --problems problems.csv --kernels kernels.txt --output scores.csv",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    options.add_problem_file(parser)
    meaning = "kernel names, one per line, or a CSV with a column kernel"
    parser.add_argument("--kernels", required=True, type=Path, metavar="TXT", help=meaning)
    parser.add_argument("--output", required=True, type=options.csv_output, metavar="CSV", help="table to write")
    parser.epilog = "Higher scores are faster; they compare kernels of one problem. See docs/internals/serving.md."


def run(args: argparse.Namespace) -> int:
    """Write the table; print remarks on standard error and a summary on standard output."""
    table, notes = scoring.score_kernels(args.models, args.problems, args.kernels)
    write_text(args.output, table.to_csv(index=False))
    sys.stderr.writelines(f"note: {note}\n" for note in notes)
    problems = table.drop_duplicates(["variant", "dtype", "layout", *DIMS])
    content = {"table": args.output, "arch": table["arch"].iloc[0], "device_kind": table["device_kind"].iloc[0]}
    content |= {"pairs": len(table), "kernels": table["kernel"].nunique(), "problems": len(problems)}
    content |= {"supported_pairs": int(table["supported"].sum()), "notes": notes}
    text = (
        "{pairs:,} pairs of {kernels:,} kernels and {problems:,} problems scored on {arch} (model of {device_kind} "
        "times); {supported_pairs:,} can run"
    )
    return options.answer(args, content, [text.format(**content)])
