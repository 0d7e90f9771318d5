"""``tileseer select``: rank the kernels of a published model for one convolution."""

import argparse
import sys
from pathlib import Path

import numpy as np

from tileseer.cli import options
from tileseer.client.published import published, read_picker
from tileseer.conv.problem import DIMS
from tileseer.serving import kernel_list
from tileseer.serving.picker import NO_CANDIDATE

EXAMPLES = (
    f"tileseer select results/models/gfx950 --problem {options.EXAMPLE} --top 3",
    "tileseer select results/models/gfx950 --variant forward --dtype bf16 --N 8 --C 64 --K 64 --Hi 56 --Wi 56 --json",
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
    operation = f"{args.variant}_{args.dtype}"
    listed, folder = published(args.models, operation)
    picker = read_picker(folder, listed, operation)
    dims = np.array([getattr(problem, name) for name in DIMS])
    if args.confidence is None:
        ranked = picker.ranked(dims)[: args.top]
    else:
        # Imported here: pandas and LightGBM take half a second, and a ranking does without.
        from tileseer.client.selection import Selector

        ranked = Selector.load(args.models, operation).guaranteed(problem, args.confidence).to_dict("records")
    others = kernel_list.other_names(folder)
    ranked = [row | {"aliases": others.get(row["kernel"], [])} for row in ranked]
    measured = NO_CANDIDATE if args.no_known else int(picker.known(dims[None])[0])
    fastest = None if measured == NO_CANDIDATE else picker.candidates[measured]
    origin = {name: getattr(picker.about, name) for name in ("operation", "arch", "device", "device_kind", "source")}
    content = {
        **origin,
        "problem": {name: getattr(problem, name) for name in DIMS},
        "fastest_measured": fastest,
        "candidates": ranked,
    }
    lines = ["{operation} on {arch} ({device}), device kind: {device_kind}".format(**origin)]
    if origin["source"] is not None:
        lines.append(f"times of others: {origin['source']}")
    if fastest is not None:
        lines.append(f"fastest measured on exactly this problem ({origin['device_kind']}): {fastest}")
    if not ranked:
        from tileseer.client.selection import Selector

        refused = Selector.load(args.models, operation).refusals(problem)
        why = "; ".join(f"{count} candidates: {reason}" for reason, count in refused.items())
        print(f"no candidate supports the problem; the pool has {len(picker.candidates)}. {why}", file=sys.stderr)
    lines += options.table_lines(
        list(FORMS), [[form.format(row[name]) for name, form in FORMS.items()] for row in ranked]
    )
    shown = {row["kernel"]: row["aliases"] for row in ranked if row["aliases"]}
    lines += [f"same machine code as {kernel}: {', '.join(names)}" for kernel, names in shown.items()]
    return options.answer(args, content, lines, not ranked)
