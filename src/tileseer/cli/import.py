"""``tileseer import``: make a recording of measurements that others made."""

import argparse

from tileseer.cli import formats
from tileseer.cli.formats import run as run

EXAMPLES = tuple(example for module in formats.importers().values() for example in module.EXAMPLES)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the formats and their arguments."""
    formats.add_formats(parser, formats.importers())
