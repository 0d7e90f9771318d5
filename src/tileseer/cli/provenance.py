"""``tileseer provenance``: the origin of a published model."""

import argparse

import yaml

from tileseer.cli import options
from tileseer.serve.provenance import read_provenance

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
    made = read_provenance(args.models).model_dump(mode="json")
    shown = {name: value for name, value in made.items() if name != "config"}
    return options.answer(args, {"provenance": made}, yaml.safe_dump(shown, sort_keys=False).splitlines())
