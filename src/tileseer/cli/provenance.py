"""``tileseer provenance``: the origin of a published model, and what was published before it."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve import provenance, publication

EXAMPLES = (
    "tileseer provenance results/models/gfx950",
    "tileseer provenance results/models/gfx950 --json",
    "tileseer provenance results/models/gfx950 --history",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    meaning = "list all publications of this arch: efficiencies on unseen problems"
    parser.add_argument("--history", action="store_true", help=meaning)
    parser.epilog = "All hashes of the directory are checked first. --json has the whole configuration as well."


def run(args: argparse.Namespace) -> int:
    """Print the origin of the models, or their publications."""
    if args.history:
        return _history(args)
    last, earlier = model_files.of_one_version(args.models, lambda: _read(args.models))
    content = {"provenance": last, **({"published_earlier": earlier} if earlier else {})}
    shown = _without_config(last) | {name: _without_config(made) for name, made in earlier.items()}
    return options.answer(args, content, yaml.safe_dump(shown, sort_keys=False).splitlines())


def _read(models: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return what made the models that were published last, and operations that were published earlier."""
    earlier = provenance.read_earlier_provenance(models)
    last = provenance.read_provenance(models).model_dump(mode="json")
    return last, {name: made.model_dump(mode="json") for name, made in earlier.items()}


def _without_config(made: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in made.items() if name != "config"}


def _history(args: argparse.Namespace) -> int:
    """Print a row for each publication of the arch of a model directory and operation, the oldest first."""
    models = args.models.resolve()
    path = models.parents[1] / "history.jsonl"
    published = [one for one in publication.read_history(path) if one.arch == models.name]
    if not published:
        raise UserError(f"{path}: it has no publication of {models.name}; run tileseer run")
    rows = list(_history_rows(published, publication.digest_of_models(models)))
    return options.answer(args, {"published": [one.model_dump() for one in published]}, options.table_lines(rows))


def _history_rows(published: list[publication.Published], on_disk: str) -> Iterator[dict[str, str]]:
    """Yield a row for each publication, with each operation's mean and change; ``on_disk``: digest of the models."""
    means: dict[str, float] = {}
    current = max((at for at, one in enumerate(published) if one.models_sha256 == on_disk != ""), default=-1)
    for at, one in enumerate(published):
        figures = []
        for name, own in one.operations.items():
            change = f" ({own.mean - means[name]:+.2f})" if name in means else ""
            means[name] = own.mean
            figures.append(f"{name} {own.mean:.2f}{change}")
        yield {
            "time": one.time,
            "times": one.device_kind,
            "commit": "-" if one.commit is None else one.commit[:9] + ("+" if one.changed_files else ""),
            "config": one.config_sha256[:8],
            "on disk": "yes" if at == current else "",
            "mean efficiency, %": ", ".join(figures),
        }
