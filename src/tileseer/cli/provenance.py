"""``tileseer provenance``: the origin of a published model."""

import argparse
from pathlib import Path
from typing import Any

import yaml

from tileseer.cli import options
from tileseer.learn import model_files
from tileseer.serve import provenance

EXAMPLES = (
    "tileseer provenance results/models/gfx950",
    "tileseer provenance results/models/gfx950 --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    parser.epilog = "All hashes of the directory are checked first. --json has the whole configuration as well."


def run(args: argparse.Namespace) -> int:
    """Print the origin of the models."""
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
