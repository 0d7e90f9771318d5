"""The kernels of a rule-set file: groups of tiles crossed with options."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tileseer.core.errors import UserError
from tileseer.core.strict_tables import StrictModel, distinct
from tileseer.facts.operations import Variant
from tileseer.libraries.cutlass.kernel import CutlassKernel
from tileseer.libraries.cutlass.rules import RULES
from tileseer.libraries.enumeration import Count, DirectionRows, Sweep, Triple, rows_of
from tileseer.problems.operation import Operation


class CutlassTile(StrictModel):
    """A block tile, its warps, and the depths of the pipeline that it is built with."""

    tile: Triple
    warps: Triple
    stages: list[Count] = Field(min_length=1)


class CutlassOptions(StrictModel):
    """Groups of tiles and what each tile of them is crossed with."""

    ndims: list[Literal[2, 3]] = Field(min_length=1)
    tiles: list[str] = Field(min_length=1)
    iterators: list[Literal["optimized", "analytic"]] = Field(min_length=1)
    swizzles: list[Literal[1, 4, 8]] = Field([1], min_length=1)
    vectors: list[Triple] = Field([[8, 8, 8]], min_length=1)
    strides: list[Literal["any", "unity", "strided"]] = Field(["any"], min_length=1)
    group_modes: list[Literal["none", "single", "multiple"]] = Field(["none"], min_length=1)


class CutlassVariant(DirectionRows):
    """What a direction is enumerated from."""

    options: list[CutlassOptions] = Field(min_length=1)


class CutlassSweep(Sweep):
    """Groups of tiles crossed with options."""

    rules = RULES
    instruction: Triple
    tiles: dict[str, Annotated[list[CutlassTile], AfterValidator(distinct)]] = Field(min_length=1)
    variants: dict[Variant, CutlassVariant]

    def rows(self, operation: Operation) -> CutlassVariant:
        """See ``Sweep``."""
        return rows_of(self.variants, operation)

    def combinations(self, arch: str, operation: Operation, ndims: Sequence[int]) -> Iterator[CutlassKernel]:
        """See ``Sweep``."""
        for option in self.rows(operation).options:
            if unknown := sorted(set(option.tiles) - set(self.tiles)):
                raise UserError(
                    f"options.tiles: there is no group {unknown[0]!r} of tiles; use {', '.join(self.tiles)}"
                )
            tiles = [row for group in option.tiles for row in self.tiles[group]]
            dimensionalities = [ndim for ndim in option.ndims if ndim in ndims]
            choices = product(option.swizzles, option.vectors, option.strides, option.group_modes)
            for ndim, tile, iterator, (swizzle, vectors, *forms) in product(
                dimensionalities, tiles, option.iterators, list(choices)
            ):
                sizes = (*tile.tile, *tile.warps, *self.instruction)
                for stages in tile.stages:
                    fields: list[Any] = [ndim, iterator, *sizes, stages, swizzle, *vectors, *forms]
                    yield CutlassKernel(operation.variant, operation.dtype, *fields)
