"""Rows of measurements: assembly from journals, recordings of others, provenance."""

# Says in which module a name is that is looked for here.
from tileseer import __getattr__ as __getattr__
