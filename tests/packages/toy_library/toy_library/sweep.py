"""The kernels of a file."""

from itertools import product

from tileseer.libraries.enumeration import Count, Sweep, sift
from tileseer.libraries.rules import broken_rules
from toy_library.kernel import ToyKernel
from toy_library.rules import RULES


class ToySweep(Sweep):
    """Sides of tiles; a tile has at most 8192 elements."""

    sides: list[Count]

    def enumerate(self, specs, arch, operation, ndims, included=()):
        shapes = product(ndims, self.sides, self.sides)
        made = [ToyKernel(operation.variant, operation.dtype, *shape) for shape in shapes]
        broken = broken_rules(RULES.legality, {"kernel": RULES.read_of_kernels(ToyKernel.frame(made), 64), "arch": {}})
        return sift(made, broken, [1], f"on {arch} for {operation}")
