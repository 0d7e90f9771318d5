"""The kernels of a file."""

from itertools import product

import numpy as np

from tileseer.kernels.enumeration import Count, Sweep, sift
from tileseer.kernels.rules import broken_rules
from toy_library.kernel import ToyKernel
from toy_library.rules import SMALL


class ToySweep(Sweep):
    """Sides of tiles; a tile has at most 8192 elements."""

    sides: list[Count]

    def enumerate(self, specs, arch, operation, ndims, included=()):
        shapes = product(ndims, self.sides, self.sides)
        made = [ToyKernel(operation.variant, operation.dtype, *shape) for shape in shapes]
        columns = {"area": np.array([kernel.tile_m * kernel.tile_n for kernel in made])}
        return sift(made, broken_rules([SMALL], columns), [1], f"on {arch} for {operation}")
