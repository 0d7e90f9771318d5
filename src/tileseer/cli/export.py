"""``tileseer export``: write the choices of a model in the form that another program reads."""

from functools import partial

from tileseer.cli import formats
from tileseer.cli.formats import run as run

EXAMPLES = formats.examples_of(formats.EXPORTERS)
configure = partial(formats.add_formats, modules=formats.EXPORTERS)
