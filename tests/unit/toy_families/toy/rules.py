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


def load(path):
    return read(path, ToyRules)


def swept(rules, specs, arch, operation, ndims, included):
    shapes = product(ndims, rules.sides, rules.sides)
    made = (ToyKernel(operation.variant, operation.dtype, *shape) for shape in shapes)
    return sifted(made, small, [1], f"on {arch} for {operation}")
