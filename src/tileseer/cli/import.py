"""``tileseer import``: make a recording of measurements that others made."""

from functools import partial

from tileseer.cli import formats
from tileseer.cli.formats import run as run

EXAMPLES = formats.examples_of(formats.IMPORTERS)
configure = partial(formats.add_formats, modules=formats.IMPORTERS)
