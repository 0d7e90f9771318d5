"""``tileseer history``: what was published when, and how good it was."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.publish import history

EXAMPLES = ("tileseer history", "tileseer history gfx950 --markdown")
COLUMNS = (
    "time", "arch", "times", "commit", "config", "data", "operation", "mean, %", "change", "median, %", "P10, %",
    "without a model, %", "best possible, %",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("arch", nargs="?", help="for example gfx950 (default: all)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results (default: results)")
    parser.add_argument("--markdown", action="store_true", help="print a table for a Markdown page")
    parser.epilog = "Efficiencies on problems that the model has not seen; change: points since the publication before."


def run(args: argparse.Namespace) -> int:
    """Print a row a publication and operation, the oldest first."""
    path = args.results / "history.jsonl"
    found = [one for one in history.read(path) if args.arch in (None, one.arch)]
    if not found:
        raise UserError(f"{path}: nothing of {args.arch or 'any arch'} was published; run tileseer run")
    rows = list(_rows(found))
    if args.markdown:
        lines = [f"| {' | '.join(row)} |" for row in (COLUMNS, ["---"] * len(COLUMNS), *rows)]
    else:
        lines = options.table_lines(COLUMNS, rows)
    return options.answer(args, {"published": [one.model_dump() for one in found]}, lines)


def _rows(found: list[history.Published]) -> Iterator[list[str]]:
    before: dict[tuple[str, str], float] = {}
    for one in found:
        commit = "-" if one.commit is None else one.commit[:9] + ("+" if one.changed_files else "")
        for name, figures in one.operations.items():
            last = before.get((one.arch, name))
            before[one.arch, name] = figures.mean
            change = "-" if last is None else f"{figures.mean - last:+.2f}"
            shown = (figures.median, figures.p10, figures.without_model, figures.best_possible)
            digests = (one.config_sha256[:8], one.data_sha256.get(name, "-")[:8])
            yield [
                one.time, one.arch, one.device_kind, commit, *digests, name, f"{figures.mean:.2f}", change,
                *(f"{value:.2f}" for value in shown),
            ]  # fmt: skip
