"""The rule set of the family: groups of tiles crossed with options, and what makes a combination illegal."""

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import Field

from tileseer.conv.operation import Operation, Variant
from tileseer.core.errors import UserError
from tileseer.core.tables import Table, read
from tileseer.families.cutlass.kernel import INSTRUCTION, CutlassKernel
from tileseer.families.enumeration import (
    Count,
    DirectionRows,
    Enumeration,
    Triple,
    first_of,
    named,
    rows_of,
    sifted,
    threads_fit,
    tile_divides,
)
from tileseer.families.gemm_kernel import sizes
from tileseer.gpu.arch import ArchSpecs


class TileRow(Table):
    """A block tile, its warps, and the depths of the pipeline that it is built with."""

    tile: Triple
    warps: Triple
    stages: list[Count] = Field(min_length=1)


class OptionRow(Table):
    """Groups of tiles and what each tile of them is crossed with."""

    ndims: list[Literal[2, 3]] = Field(min_length=1)
    tiles: list[str] = Field(min_length=1)
    iterators: list[Literal["optimized", "analytic"]] = Field(min_length=1)
    swizzles: list[Literal[1, 4, 8]] = Field([1], min_length=1)
    vectors: list[Triple] = Field([[8, 8, 8]], min_length=1)
    strides: list[Literal["any", "unity", "strided"]] = Field(["any"], min_length=1)
    group_modes: list[Literal["none", "single", "multiple"]] = Field(["none"], min_length=1)


class VariantRows(DirectionRows):
    """What a direction is enumerated from."""

    options: list[OptionRow] = Field(min_length=1)


class CutlassRules(Table):
    """A rule-set file of the family."""

    instruction: Triple
    tiles: dict[str, list[TileRow]] = Field(min_length=1)
    variants: dict[Variant, VariantRows]


def load(path: Path) -> CutlassRules:
    """Read a rule-set file; a ``UserError`` names file and field."""
    rules = read(path, CutlassRules)
    for variant, rows in rules.variants.items():
        for number, option in enumerate(rows.options):
            for group in option.tiles:
                if group not in rules.tiles:
                    raise UserError(
                        f"{path}: variants.{variant}.options.{number}.tiles: there is no group {group!r} of tiles; "
                        f"use {', '.join(rules.tiles)}"
                    )
    return rules


def swept(
    rules: CutlassRules,
    specs: ArchSpecs,
    arch: str,
    operation: Operation,
    ndims: Sequence[int],
    included: Collection[str] = (),
) -> Enumeration[CutlassKernel]:
    """Every kernel of the rule set for one arch and operation; none is corrected, and none has a known defect."""
    rows = rows_of(rules.variants, operation)
    kernels = _combinations(rules, rows, operation, ndims)
    return sifted(kernels, lambda k: first_of(RULES, k, arch, specs), rows.split_k, f"on {arch} for {operation}")


def _combinations(
    rules: CutlassRules, rows: VariantRows, operation: Operation, ndims: Sequence[int]
) -> Iterator[CutlassKernel]:
    for option in rows.options:
        tiles = [row for group in option.tiles for row in rules.tiles[group]]
        wanted = [ndim for ndim in option.ndims if ndim in ndims]
        choices = product(
            wanted, tiles, option.iterators, option.swizzles, option.vectors, option.strides, option.group_modes
        )
        for ndim, tile, iterator, swizzle, vectors, strides, group_mode in choices:
            for stages in tile.stages:
                m, n, k = vectors
                yield CutlassKernel(
                    operation.variant, operation.dtype, ndim, iterator,
                    **sizes([*tile.tile, *tile.warps, *rules.instruction]), stages=stages, swizzle=swizzle,
                    vec_a=m, vec_b=n, vec_c=k, strides=strides, group_mode=group_mode,
                )  # fmt: skip


def instruction_on_arch(kernel: CutlassKernel, arch: str, specs: ArchSpecs) -> str:
    """The matrix instruction must be one of the arch, and the one that the templates are written for."""
    allowed = [tile for tile in specs.warp_tiles(arch, kernel.dtype) if tile == INSTRUCTION]
    if kernel.warp_tile in allowed:
        return ""
    return f"{kernel.warp_tile} is no {kernel.dtype} matrix instruction of CUTLASS 2.x on {arch}: {allowed}"


def shared_memory_fits(kernel: CutlassKernel, arch: str, specs: ArchSpecs) -> str:
    """The operand buffers of all stages must fit into the shared memory of a block."""
    most = specs.arch(arch).lds_bytes
    return "" if kernel.shared_bytes <= most else f"{kernel.shared_bytes} bytes of shared memory; {arch} has {most}"


def copies_are_asynchronous(kernel: CutlassKernel, arch: str, specs: ArchSpecs) -> str:
    """An asynchronous copy moves 4, 8 or 16 bytes: pipelines of three stages or more load two elements at least."""
    if kernel.stages > 2 and min(kernel.vec_a, kernel.vec_b) < 2:
        return f"{kernel.stages} stages need loads of 2 elements or more, not {kernel.vec_a} and {kernel.vec_b}"
    return ""


def volumes_load_fully(kernel: CutlassKernel, arch: str, specs: ArchSpecs) -> str:
    """The 3D templates have no narrower loads than 16 bytes."""
    if kernel.ndim == 3 and (kernel.vec_a, kernel.vec_b) != (8, 8):
        return f"3D kernels load 8 elements at a time, not {kernel.vec_a} and {kernel.vec_b}"
    return ""


def gradient_has_form(kernel: CutlassKernel, arch: str, specs: ArchSpecs) -> str:
    """The 3D input gradient exists as optimized for stride 1 and as analytic for any stride."""
    if kernel.variant != "bwd_data" or kernel.ndim != 3:
        return ""
    if (kernel.iterator, kernel.strides) in (("optimized", "unity"), ("analytic", "strided")):
        return ""
    return f"the 3D input gradient has no {kernel.iterator} iterator for strides {kernel.strides}"


def groups_have_form(kernel: CutlassKernel, arch: str, specs: ArchSpecs) -> str:
    """Groups exist forward in 2D; the optimized iterator computes one group a block."""
    if kernel.group_mode == "none":
        return ""
    if kernel.variant != "forward" or kernel.ndim != 2:
        return f"groups exist for the 2D forward direction only, not for {kernel.ndim}D {kernel.variant}"
    if kernel.iterator == "optimized" and kernel.group_mode == "multiple":
        return "the optimized iterator computes one group a block, not several"
    return ""


RULES = named(
    instruction_on_arch, tile_divides, threads_fit, shared_memory_fits, copies_are_asynchronous, volumes_load_fully,
    gradient_has_form, groups_have_form,
)  # fmt: skip
