"""Convolutions: operation, problem, its sizes as a GEMM, layers of networks, problem sets, the crawl of networks."""

# Says in which module a name is that is looked for here.
from tileseer import __getattr__ as __getattr__
