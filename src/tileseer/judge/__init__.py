"""How good picks are: the table of judged layers, the figures of any group of its rows, verdict and report."""

from tileseer import __getattr__ as __getattr__
