"""The kernels of a rule-set file: a table of tiles crossed with the options of a direction."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tileseer.core.strict_tables import StrictModel, distinct
from tileseer.facts.operations import Variant
from tileseer.libraries.ck_tile import flags
from tileseer.libraries.ck_tile.api import with_own_vectors
from tileseer.libraries.ck_tile.kernel import LAYOUTS_OF_NDIM, PIPELINES, KernelConfig
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.enumeration import Count, DirectionRows, Sweep, Triple, rows_of
from tileseer.problems.operation import Operation

Pipeline = Literal[PIPELINES]  # type: ignore[valid-type]


class TileRow(StrictModel):
    """A block tile with the waves, warp tile and vector widths that belong to it."""

    tile: Triple
    wave: Triple
    warp_tile: Triple
    vectors: Triple
    not_with: list[Pipeline] = Field(default_factory=list)
    """Pipelines that this tile is not built for."""
    only_on: list[str] = Field(default_factory=list)
    """Archs that this tile is for; empty: all."""


class OptionRow(StrictModel):
    """Pipelines and schedulers, with the options that each is crossed with."""

    pipeline: Pipeline
    schedulers: list[Literal["intrawave", "interwave"]] = Field(min_length=1)
    double_smem_buffer: list[bool] = Field([False], min_length=1)
    split_image: list[bool] = Field([False], min_length=1)
    two_stage: list[bool] = Field([False], min_length=1)
    num_groups_to_merge: list[Count] = Field([1], min_length=1)


class VariantRows(DirectionRows):
    """What a direction is swept over."""

    options: list[OptionRow] = Field(min_length=1)


class CkTileSweep(Sweep):
    """A table of tiles crossed with the options of a direction."""

    rules, defects = RULES, flags.DEFECTS
    epilogue: Literal["cshuffle", "default"]
    own_vectors: list[str] = Field(default_factory=list)
    """Archs where transposed tensors are loaded as CK Tile would choose by itself, not as the tile says."""
    tiles: Annotated[list[TileRow], AfterValidator(distinct)] = Field(min_length=1)
    variants: dict[Variant, VariantRows]

    @property
    def named_archs(self) -> Sequence[str]:
        """Archs that rows of the file are for."""
        return (*self.own_vectors, *(arch for tile in self.tiles for arch in tile.only_on))

    def rows(self, operation: Operation) -> VariantRows:
        """See ``Sweep``."""
        return rows_of(self.variants, operation)

    def combinations(self, arch: str, operation: Operation, ndims: Sequence[int]) -> Iterator[KernelConfig]:
        """See ``Sweep``."""
        own = with_own_vectors if arch in self.own_vectors else lambda kernel: kernel
        tiles = [tile for tile in self.tiles if not tile.only_on or arch in tile.only_on]
        for ndim, tile, options in product(ndims, tiles, self.rows(operation).options):
            if options.pipeline in tile.not_with:
                continue
            words = (operation.variant, operation.dtype, LAYOUTS_OF_NDIM[ndim][0], ndim, options.pipeline)
            sizes: list[Any] = [*tile.tile, *tile.wave, *tile.warp_tile, *tile.vectors]
            fields = options.model_dump(exclude={"pipeline", "schedulers"})
            for scheduler, *values in product(options.schedulers, *fields.values()):
                yield own(
                    KernelConfig(*words, self.epilogue, scheduler, *sizes, **dict(zip(fields, values, strict=True)))
                )
