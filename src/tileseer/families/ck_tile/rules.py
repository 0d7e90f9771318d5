"""The sweep rule set: a table of tiles crossed with the pipeline, scheduler and option combinations of a direction."""

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tileseer.conv.operation import Operation, Variant
from tileseer.core.tables import Table, read
from tileseer.families.ck_tile import flags, validity
from tileseer.families.ck_tile.api import with_own_vectors
from tileseer.families.ck_tile.kernel import LAYOUTS, KernelConfig
from tileseer.families.enumeration import Count, DirectionRows, Enumeration, Triple, first_of, rows_of, sifted
from tileseer.gpu.arch import ArchSpecs


class TileRow(Table):
    """A block tile with the waves, warp tile and vector widths that belong to it."""

    tile: Triple
    wave: Triple
    warp_tile: Triple
    vectors: Triple
    not_with: list[str] = Field(default_factory=list)
    """Pipelines that this tile is not built for."""
    only_on: list[str] = Field(default_factory=list)
    """Archs that this tile is for; empty: all."""


class OptionRow(Table):
    """Pipelines and schedulers, with the options that each is crossed with."""

    pipeline: str
    schedulers: list[Literal["intrawave", "interwave"]] = Field(min_length=1)
    double_smem_buffer: list[bool] = Field([False], min_length=1)
    split_image: list[bool] = Field([False], min_length=1)
    two_stage: list[bool] = Field([False], min_length=1)
    num_groups_to_merge: list[Count] = Field([1], min_length=1)


class VariantRows(DirectionRows):
    """What a direction is swept over."""

    options: list[OptionRow] = Field(min_length=1)


class SweepRules(Table):
    """A sweep rule-set file."""

    epilogue: Literal["cshuffle", "default"]
    own_vectors: list[str] = Field(default_factory=list)
    """Archs where transposed tensors are loaded as CK Tile would choose by itself, not as the tile says."""
    tiles: list[TileRow] = Field(min_length=1)
    variants: dict[Variant, VariantRows]


def load(path: Path) -> SweepRules:
    """Read a rule-set file; a ``UserError`` names file and field."""
    return read(path, SweepRules)


def swept(
    rules: SweepRules,
    specs: ArchSpecs,
    arch: str,
    operation: Operation,
    ndims: Sequence[int],
    included: Collection[str] = (flags.ALL,),
) -> Enumeration[KernelConfig]:
    """Every kernel of the rule set for one arch and operation; none is corrected, illegal ones are refused.

    A kernel with a known defect is refused unless its flag is among ``included``.
    """
    flags.check_names(included)
    for named in (*rules.own_vectors, *(arch for tile in rules.tiles for arch in tile.only_on)):
        specs.arch(named)
    rows = rows_of(rules.variants, operation)

    def fault(kernel: KernelConfig) -> tuple[str, str]:
        found = first_of(validity.RULES, kernel, arch, specs)
        return found if found[0] else flags.first_defect(kernel, arch, specs, included)

    kernels = _combinations(rules, rows, arch, operation, ndims)
    if arch in rules.own_vectors:
        kernels = map(with_own_vectors, kernels)
    return sifted(kernels, fault, rows.split_k, f"on {arch} for {operation}")


def _combinations(
    rules: SweepRules, rows: VariantRows, arch: str, operation: Operation, ndims: Sequence[int]
) -> Iterator[KernelConfig]:
    tiles = [tile for tile in rules.tiles if not tile.only_on or arch in tile.only_on]
    for ndim, tile, options in product(ndims, tiles, rows.options):
        if options.pipeline in tile.not_with:
            continue
        sizes: list[Any] = [*tile.tile, *tile.wave, *tile.warp_tile, *tile.vectors]
        for scheduler, double_smem_buffer, split_image, two_stage, merged in product(
            options.schedulers, options.double_smem_buffer, options.split_image, options.two_stage,
            options.num_groups_to_merge,
        ):  # fmt: skip
            choices: dict[str, Any] = {
                "num_groups_to_merge": merged, "double_smem_buffer": double_smem_buffer,
                "two_stage": two_stage, "split_image": split_image,
            }  # fmt: skip
            yield KernelConfig(
                operation.variant, operation.dtype, LAYOUTS[ndim][0], ndim, options.pipeline, rules.epilogue, scheduler,
                *sizes, **choices,
            )  # fmt: skip
