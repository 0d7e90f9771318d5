"""The rule set ``full``: one cell of it is a direction, a dimensionality and a data type on one arch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

from tileseer.facts.arch import ArchSpecs, Triple
from tileseer.facts.operations import Variant
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.upstream.named_tables import CLASS_OF, FullRules, NamedTile, Pipelines, VariantRules
from tileseer.libraries.ck_tile.upstream.reference_filter import CONFIG_RULES, without_broken
from tileseer.libraries.rules import TILE_DIVIDES

LARGEST_FILTER3X3_TILE = 4096
"""Elements of C a block: above it there is no 3x3 specialisation."""
UNSPECIALIZED_TILE_K = 8
WIDE, NARROW = 32, 16
"""Usual sides of a square warp tile."""
WAVES_K = (1, 2)
WIDTHS = (1, 2, 4, 8, 16)
MAX_BYTES = 32
THREADS_A_WAVE = 64
"""The reference assumes waves of 64 on every arch; so do the lists that this reproduces."""

Pair = tuple[Triple, tuple[int, int]]
"""Waves (m, n, k), and the m and n of a warp tile; its k depends on the kernel."""


@dataclass(frozen=True)
class Cell:
    """What is enumerated at once."""

    arch: str
    variant: str
    ndim: int
    dtype: str


def gemm_kernels(cell: Cell, rules: FullRules, specs: ArchSpecs) -> list[KernelConfig]:
    """Return the implicit-GEMM kernels of a cell, in order; the first of equal ones stays."""
    variant = rules.variants.get(cast(Variant, cell.variant))
    if variant is None:
        return []
    rows = _rows(cell, variant)
    made = dict.fromkeys(kernel for row in rows for kernel in _crossed(cell, row, rules, specs))
    return without_broken((TILE_DIVIDES, *CONFIG_RULES), list(made), cell.arch, specs)


def depthwise_kernels(dtypes: Sequence[str], rules: FullRules) -> list[DepthwiseConfig]:
    """Return the depthwise kernels, data types innermost; they do not depend on the arch."""
    return [
        DepthwiseConfig(dtype, *row.tile, row.filter, *row.stride, *row.sub_tile, row.batches, *row.vectors)
        for row in rules.depthwise
        for dtype in dtypes
    ]


@dataclass(frozen=True)
class _Row:
    """A tile of a cell with what it is crossed with; ``options`` are those that are switched on."""

    tile: NamedTile
    vectors: list[Triple]
    pipelines: Pipelines
    options: dict[str, Any]


def _rows(cell: Cell, variant: VariantRules) -> Iterator[_Row]:
    """Yield the tiles of the dimensionality, then each feature with its tiles whatever the dimensionality."""
    class_name = CLASS_OF[cell.dtype]
    tiles = {row.tile: (row, own) for row in variant.tiles if (own := row.of_class(class_name))}
    for row, own in tiles.values():
        if cell.ndim in own.base:
            yield _Row(row, own.vectors, own.pipelines, {})
    for feature in variant.features:
        for row, own in (tiles[tile] for tile in feature.tiles if class_name in feature.classes and tile in tiles):
            yield _Row(row, own.vectors, feature.pipelines or own.pipelines, feature.options())


def _crossed(cell: Cell, row: _Row, rules: FullRules, specs: ArchSpecs) -> Iterator[KernelConfig]:
    tile, options = row.tile.tile, row.options
    wavelet_small = rules.variants[cast(Variant, cell.variant)].small_warp_k_with_wavelet
    for (waves, warp), widths in product(_pairs(row.tile, cell, specs), row.vectors):
        if not _vectors_fit(widths, tile, waves, specs.element_size(cell.dtype)):
            continue
        for (pipeline, scheduler), specialization in product(row.pipelines, _specializations(cell.variant, tile)):
            if pipeline == "wavelet" and options.get("explicit_gemm"):
                continue
            small = options.get("streamk", "none") != "none" or (pipeline == "wavelet" and tile in wavelet_small)
            words = (cell.variant, cell.dtype, rules.layout, cell.ndim, pipeline, rules.epilogue, scheduler)
            warp_k = _warp_tile_k(tile[2], warp[0], CLASS_OF[cell.dtype] == "float", small)
            sizes: list[Any] = [*tile, *waves, *warp, warp_k, *widths]
            fields = {"double_smem_buffer": pipeline == "compv4", "specialization": specialization, **options}
            yield KernelConfig(*words, *sizes, **fields)


def _specializations(variant: str, tile: Triple) -> tuple[str, ...]:
    if variant != "forward":
        return "default", "filter1x1_stride1_pad0"
    if tile[2] == UNSPECIALIZED_TILE_K:
        return ("default",)
    pointwise = ("default", "filter1x1_pad0", "filter1x1_stride1_pad0")
    return (*pointwise, "filter3x3") if tile[0] * tile[1] <= LARGEST_FILTER3X3_TILE else pointwise


def _pairs(row: NamedTile, cell: Cell, specs: ArchSpecs) -> list[Pair]:
    """Return the pairs of the table that the arch can build, or all that tile the block if it can build none."""
    allowed = set(specs.arch(cell.arch).waves)
    every = (
        ((waves_m, waves_n, waves_k), (warp_m, warp_n))
        for warp_m, warp_n, _ in specs.warp_tiles(cell.arch, cell.dtype)
        for waves_m, waves_n, waves_k in product(
            _wave_counts(row.tile[0], warp_m), _wave_counts(row.tile[1], warp_n), WAVES_K
        )
    )
    possible = [pair for pair in dict.fromkeys(every) if pair[0] in allowed]
    chosen = [(wave, (side, side)) for wave in row.waves for side in _sides(row, wave)]
    return [pair for pair in chosen if pair in possible] or possible


def _warp_tile_k(tile_k: int, warp_m: int, is_float: bool, small: bool) -> int:
    """Return k of the warp tile; ``small`` asks for the form that stream-K and some wavelet kernels use."""
    wide = warp_m == WIDE
    if small:
        return min(8 if wide else 16, tile_k // 4 if is_float else tile_k)
    if is_float:
        return min(4 if tile_k <= 16 else 8, tile_k)
    return min(16 if wide else 32, tile_k)


def _sides(row: NamedTile, wave: Triple) -> list[int]:
    """Return m = n of the warp tile: the table's exception, else 32 where that fits both sides of a wave's share."""
    fits = all(size % (waves * WIDE) == 0 for size, waves in zip(row.tile[:2], wave[:2], strict=True))
    return row.warp_tile.get(wave, [WIDE if fits else NARROW])


def _wave_counts(size: int, warp: int) -> list[int]:
    """Return the waves that share ``size``, from most to fewest: the repeats of each divide what is there."""
    warps = size // warp
    return [warps // repeats for repeats in range(1, warps + 1) if size % warp == warps % repeats == 0]


def _vectors_fit(vectors: Triple, tile: Triple, waves: Triple, element_bytes: float) -> bool:
    """Return whether the threads of a block can load A (m, k) and B (n, k) evenly and store rows of C in vectors.

    The elements of A or B a thread loads must be a multiple of the vector, or the vector a multiple of them.
    """
    threads = THREADS_A_WAVE * math.prod(waves)
    if any(width not in WIDTHS or width * element_bytes > MAX_BYTES for width in vectors):
        return False
    for rows, width in zip(tile[:2], vectors[:2], strict=True):
        share, rest = divmod(rows * tile[2], threads)
        if rest or (share % width and width % share):
            return False
    return tile[1] % vectors[2] == 0
