"""Rows of measurements: assembly from journals, recordings of others, provenance."""

from tileseer import __getattr__ as __getattr__
