"""``tileseer provenance``: the origin of a published model, and what was published before it."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.serve import provenance, publication
from tileseer.serve.provenance import Provenance

EXAMPLES = (
    "tileseer provenance results/models/gfx950",
    "tileseer provenance results/models/gfx950 --json",
    "tileseer provenance results/models/gfx950 --history",
)

HISTORY_COLUMNS = (
    "time", "times", "commit", "config", "data", "operation", "mean, %", "change", "median, %", "P10, %",
    "without a model, %", "best possible, %",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json")
    parser.add_argument(
        "--history", action="store_true", help="list all publications of this arch: efficiencies on unseen problems"
    )
    parser.epilog = "All hashes of the directory are checked first."


def run(args: argparse.Namespace) -> int:
    """Print the origin of the models, or their publications."""
    if args.history:
        return _history(args)
    made = provenance.read_provenance(args.models)
    return options.answer(args, {"provenance": made.model_dump(mode="json")}, _lines(made))


def _lines(made: Provenance) -> Iterator[str]:
    source = made.source
    yield f"models for {made.arch}, by tileseer {made.tileseer} on Python {made.python}"
    if source.commit is None:
        yield "commit     unknown: the workflow's folder was no git checkout"
    else:
        changed = source.uncommitted or []
        yield f"commit     {source.commit} of {source.date}, {len(changed)} files changed since"
        yield from (f"           changed: {name}" for name in changed)
    yield f"code       {made.code_sha256 or 'digest unknown: published by an earlier release'}"
    yield "compiler   " + ", ".join(f"{name} {value}" for name, value in made.compiler.items())
    yield f"C library  {made.libc or 'unknown: published by an earlier release'}"
    yield "packages   " + ", ".join(f"{name} {version}" for name, version in made.packages.items())
    for operation, one in made.operations.items():
        told = one.measurements
        yield f"{operation}"
        yield f"  device   {told.device}, {told.device_kind}, measurement id {told.measurement_id}"
        yield "  pairs    " + ", ".join(f"{count:,} {status}" for status, count in told.pairs_by_status.items())
        yield from (f"  input    {digest}  {path}" for path, digest in one.inputs.items())
        if told.recording:
            yield from (f"  recorded {line}" for line in _flat(told.recording.model_dump(exclude_defaults=True)))
    yield from (f"file       {digest}  {path}" for path, digest in made.files.items())
    yield "configuration: --json"


def _history(args: argparse.Namespace) -> int:
    """Print a row for each publication of the arch of a model directory and operation, the oldest first."""
    models = args.models.resolve()
    path = models.parents[1] / "history.jsonl"
    published = [one for one in publication.read_history(path) if one.arch == models.name]
    if not published:
        raise UserError(f"{path}: it has no publication of {models.name}; run tileseer run")
    lines = options.table_lines(HISTORY_COLUMNS, list(_history_rows(published)))
    return options.answer(args, {"published": [one.model_dump() for one in published]}, lines)


def _history_rows(published: list[publication.Published]) -> Iterator[list[str]]:
    means: dict[str, float] = {}
    for one in published:
        commit = "-" if one.commit is None else one.commit[:9] + ("+" if one.changed_files else "")
        for name, figures in one.operations.items():
            change = f"{figures.mean - means[name]:+.2f}" if name in means else "-"
            means[name] = figures.mean
            rest = (figures.median, figures.p10, figures.without_model, figures.best_possible)
            digests = (one.config_sha256[:8], one.data_sha256.get(name, "-")[:8])
            yield [
                one.time, one.device_kind, commit, *digests, name, f"{figures.mean:.2f}", change,
                *(f"{value:.2f}" for value in rest),
            ]  # fmt: skip


def _flat(told: dict[str, Any], where: str = "") -> Iterator[str]:
    """A line for each value of nested tables."""
    for name, value in told.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{where}{name}.")
        else:
            yield f"{where}{name}: {', '.join(value) if isinstance(value, list) else value}"
