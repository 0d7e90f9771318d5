"""The rule set: sides of tiles; a tile has at most 8192 elements."""

from __future__ import annotations

from itertools import product

from tileseer.core.tables import Table, read
from tileseer.families.enumeration import Count, sifted
from toy_families.toy.kernel import ToyKernel


class ToyRules(Table):
    sides: list[Count]


def small(kernel):
    area = kernel.tile_m * kernel.tile_n
    return ("", "") if area <= 8192 else ("small", f"a tile of {area} elements; at most 8192")


def enumerate_kernels(rule_set, specs, arch, operation, ndims, included):
    sides = read(rule_set, ToyRules).sides
    made = (ToyKernel(operation.variant, operation.dtype, ndim, m, n) for ndim, m, n in product(ndims, sides, sides))
    return sifted(made, small, [1], f"on {arch} for {operation}")
