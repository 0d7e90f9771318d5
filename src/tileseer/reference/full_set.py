"""The rule set ``full``: one cell of it is a direction, a dimensionality and a data type on one arch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

from tileseer.conv.operation import Variant
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.gpu.arch import ArchSpecs, Triple
from tileseer.reference import reference_filter
from tileseer.reference.named_tables import CLASS_OF, ClassRow, FullRules, TileRow, VariantRules
from tileseer.reference.pairs import Pair, pairs_of, tile_divides, warp_tile_k
from tileseer.reference.vectors import vectors_fit

LARGEST_FILTER3X3_TILE = 4096
"""Elements of C a block: above it there is no 3x3 specialisation."""
UNSPECIALIZED_TILE_K = 8


@dataclass(frozen=True)
class Cell:
    """What is enumerated at once."""

    arch: str
    variant: str
    ndim: int
    dtype: str

    @property
    def is_float(self) -> bool:
        """Tell whether the data type is of the class ``float``."""
        return CLASS_OF[self.dtype] == "float"


@dataclass(frozen=True)
class _Job:
    row: TileRow
    pairs: list[Pair]
    vectors: list[Triple]
    pipelines: tuple[tuple[str, str], ...]
    options: dict[str, Any]


def gemm_kernels(cell: Cell, rules: FullRules, specs: ArchSpecs) -> list[KernelConfig]:
    """Return the implicit-GEMM kernels of a cell, in order; the first of equal ones stays."""
    variant = rules.variants.get(cast(Variant, cell.variant))
    kernels: dict[KernelConfig, None] = {}
    if variant is None:
        return []
    for job in _jobs(cell, variant, specs):
        for kernel in _of_job(cell, job, rules, variant, specs):
            if tile_divides(kernel) and not reference_filter.config_fault(kernel, cell.arch, specs, tagged=True)[0]:
                kernels[kernel] = None
    return list(kernels)


def depthwise_kernels(dtypes: list[str], rules: FullRules) -> list[DepthwiseConfig]:
    """Return the depthwise kernels, data types innermost; they do not depend on the arch."""
    return [
        DepthwiseConfig(dtype, *row.tile, row.filter, *row.stride, *row.sub_tile, row.batches, *row.vectors)
        for row in rules.depthwise
        for dtype in dtypes
    ]


def _jobs(cell: Cell, variant: VariantRules, specs: ArchSpecs) -> Iterator[_Job]:
    """Yield the tiles of the dimensionality, then each feature with its tiles whatever the dimensionality."""
    rows = {row.tile: row for row in variant.tiles}
    class_name = CLASS_OF[cell.dtype]
    for row in variant.tiles:
        tile_class = row.of_class(class_name)
        if tile_class and cell.ndim in tile_class.base:
            yield _job(cell, row, tile_class, specs, tile_class.pipelines, {})
    for feature in variant.features:
        for row in (rows[tile] for tile in feature.tiles if class_name in feature.classes):
            tile_class = row.of_class(class_name)
            if tile_class:
                pipelines = feature.pipelines or tile_class.pipelines
                yield _job(cell, row, tile_class, specs, pipelines, feature.options())


def _job(
    cell: Cell,
    row: TileRow,
    tile_class: ClassRow,
    specs: ArchSpecs,
    pipelines: tuple[tuple[str, str], ...],
    options: dict[str, Any],
) -> _Job:
    return _Job(row, pairs_of(row, cell.arch, cell.dtype, specs), tile_class.vectors, pipelines, options)


def _of_job(cell: Cell, job: _Job, rules: FullRules, variant: VariantRules, specs: ArchSpecs) -> Iterator[KernelConfig]:
    element_bytes = specs.element_size(cell.dtype)
    tile, specializations = job.row.tile, _specializations(cell.variant, job.row.tile)
    for pair, vectors in product(job.pairs, job.vectors):
        if not vectors_fit(vectors, tile, pair.waves, element_bytes):
            continue
        for (pipeline, scheduler), specialization in product(job.pipelines, specializations):
            if pipeline == "wavelet" and job.options.get("explicit_gemm"):
                continue
            warp_k = warp_tile_k(tile, pair, cell.is_float, _is_small(job, pipeline, variant))
            yield KernelConfig(
                cell.variant, cell.dtype, rules.layout, cell.ndim, pipeline, rules.epilogue, scheduler,
                *tile, *pair.waves, pair.warp_m, pair.warp_n, warp_k, *vectors,
                double_smem_buffer=pipeline == "compv4", specialization=specialization, **job.options,
            )  # fmt: skip


def _is_small(job: _Job, pipeline: str, variant: VariantRules) -> bool:
    if job.options.get("streamk", "none") != "none":
        return True
    return pipeline == "wavelet" and job.row.tile in variant.small_warp_k_with_wavelet


def _specializations(variant: str, tile: Triple) -> tuple[str, ...]:
    if variant != "forward":
        return "default", "filter1x1_stride1_pad0"
    if tile[2] == UNSPECIALIZED_TILE_K:
        return ("default",)
    known = ("default", "filter1x1_pad0", "filter1x1_stride1_pad0")
    return (*known, "filter3x3") if tile[0] * tile[1] <= LARGEST_FILTER3X3_TILE else known
