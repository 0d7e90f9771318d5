"""Comparison with the upstream generator of CK Tile kernels: named rule sets, its filter."""
