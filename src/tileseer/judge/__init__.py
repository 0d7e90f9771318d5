"""How good picks are: the table of judged layers, the figures of any group of its rows, verdict and report."""

# Says in which module a name is that is looked for here.
from tileseer import __getattr__ as __getattr__
