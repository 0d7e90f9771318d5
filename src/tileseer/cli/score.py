"""``tileseer score``: score any kernels on any problems, to judge a model by somebody else's measurements."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.cli import options
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve import scoring

EXAMPLES = (
    "tileseer score --model results/models/gfx950 --problems problems.csv --kernels kernels.txt --out scores.parquet",
)
WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": parquet.write_table,
    ".csv": lambda table, path: write_text(path, table.to_pandas().to_csv(index=False)),
}
"""How a table is written, by the suffix of its file."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="directory with index.json")
    meaning = "problems in the columns of the benchmark CSV"
    parser.add_argument("--problems", required=True, type=Path, metavar="CSV", help=meaning)
    meaning = "kernel names, one per line, or a CSV with a column kernel; without it each row of --problems is a pair"
    parser.add_argument("--kernels", type=Path, metavar="TXT", help=meaning)
    out = ("--out", "--output")
    parser.add_argument(*out, dest="out", required=True, type=Path, metavar="FILE", help=".parquet or .csv to write")
    parser.epilog = "Higher scores are faster; they compare kernels of one problem. See docs/internals/serving.md."


def run(args: argparse.Namespace) -> int:
    """Write the table; print remarks on standard error and a summary on standard output."""
    if args.out.suffix not in WRITERS:
        raise UserError(f"--out: {args.out} has to end in {' or '.join(WRITERS)}")
    index = model_files.read_index(args.model)
    if args.out.is_dir():
        raise UserError(f"--out: {args.out} is a folder; give the name of a file")
    pairs, remarks = scoring.read_pairs(args.problems, args.kernels, index.arch)
    table, more = scoring.score_pairs(args.model, pairs)
    WRITERS[args.out.suffix](table, args.out)
    for remark in remarks + more:
        print(f"note: {remark}", file=sys.stderr)
    supported = pc.sum(table["supported"]).as_py() or 0
    counts = {"pairs": table.num_rows, "kernels": len({one.text for one in pairs.kernels}), "problems": len(pairs.dims)}
    content = {"table": args.out, "arch": index.arch, "device_kind": index.device_kind, **counts}
    text = (
        "{pairs:,} pairs of {kernels:,} kernels and {problems:,} problems scored on ".format(**counts)
        + f"{index.arch} (model of {index.device_kind} times); {supported:,} can run"
    )
    return options.answer(args, content | {"supported_pairs": supported, "notes": remarks + more}, [text])
