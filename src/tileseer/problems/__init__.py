"""Convolutions: operation, problem, its sizes as a GEMM, layers of networks, problem sets, the crawl of networks."""

from tileseer import __getattr__ as __getattr__
