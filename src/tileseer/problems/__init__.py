"""Convolutions: operation, problem, its sizes as a GEMM, layers of networks, problem sets, the crawl of networks."""
