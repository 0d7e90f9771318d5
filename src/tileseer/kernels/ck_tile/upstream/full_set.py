"""The rule set ``full``: one cell of it is a direction, a dimensionality and a data type on one arch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

from tileseer.config.operations import Variant
from tileseer.gpus.arch import ArchSpecs, Triple
from tileseer.kernels.ck_tile.depthwise import DepthwiseConfig
from tileseer.kernels.ck_tile.kernel import KernelConfig
from tileseer.kernels.ck_tile.upstream.named_tables import CLASS_OF, FullRules, NamedTile, Pipelines, VariantRules
from tileseer.kernels.ck_tile.upstream.reference_filter import CONFIG_RULES, without_broken
from tileseer.kernels.rules import TILE_DIVIDES

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


@dataclass(frozen=True)
class Pair:
    """A wave layout (m, n, k) and the m and n of a warp tile; the warp tile's k depends on the kernel."""

    waves: Triple
    warp_m: int
    warp_n: int


@dataclass(frozen=True)
class Cell:
    """What is enumerated at once."""

    arch: str
    variant: str
    ndim: int
    dtype: str


def gemm_kernels(cell: Cell, rules: FullRules, specs: ArchSpecs) -> list[KernelConfig]:
    """The implicit-GEMM kernels of a cell, in order; the first of equal ones stays."""
    variant = rules.variants.get(cast(Variant, cell.variant))
    if variant is None:
        return []
    made = dict.fromkeys(
        kernel
        for row, vectors, pipelines, options in _tiles(cell, variant)
        for kernel in _crossed(cell, row, vectors, pipelines, options, rules, variant, specs)
    )
    return without_broken((TILE_DIVIDES, *CONFIG_RULES), list(made), cell.arch, specs)


def depthwise_kernels(dtypes: Sequence[str], rules: FullRules) -> list[DepthwiseConfig]:
    """The depthwise kernels, data types innermost; they do not depend on the arch."""
    return [
        DepthwiseConfig(dtype, *row.tile, row.filter, *row.stride, *row.sub_tile, row.batches, *row.vectors)
        for row in rules.depthwise
        for dtype in dtypes
    ]


def _tiles(cell: Cell, variant: VariantRules) -> Iterator[tuple[NamedTile, list[Triple], Pipelines, dict[str, Any]]]:
    """Yield the tiles of the dimensionality, then each feature with its tiles whatever the dimensionality.

    With each: vectors, pipelines with their schedulers, and the options that are switched on.
    """
    rows = {row.tile: row for row in variant.tiles}
    class_name = CLASS_OF[cell.dtype]
    for row in variant.tiles:
        tile_class = row.of_class(class_name)
        if tile_class and cell.ndim in tile_class.base:
            yield row, tile_class.vectors, tile_class.pipelines, {}
    for feature in variant.features:
        for row in (rows[tile] for tile in feature.tiles if class_name in feature.classes):
            tile_class = row.of_class(class_name)
            if tile_class:
                yield row, tile_class.vectors, feature.pipelines or tile_class.pipelines, feature.options()


def _crossed(
    cell: Cell, row: NamedTile, vectors: list[Triple], pipelines: Pipelines, options: dict[str, Any],
    rules: FullRules, variant: VariantRules, specs: ArchSpecs,
) -> Iterator[KernelConfig]:  # fmt: skip
    element_bytes = specs.element_size(cell.dtype)
    specializations = _specializations(cell.variant, row.tile)
    streamk = options.get("streamk", "none") != "none"
    for pair, widths in product(pairs_of(row, cell.arch, cell.dtype, specs), vectors):
        if not vectors_fit(widths, row.tile, pair.waves, element_bytes):
            continue
        for (pipeline, scheduler), specialization in product(pipelines, specializations):
            if pipeline == "wavelet" and options.get("explicit_gemm"):
                continue
            small = streamk or (pipeline == "wavelet" and row.tile in variant.small_warp_k_with_wavelet)
            warp_k = warp_tile_k(row.tile, pair, CLASS_OF[cell.dtype] == "float", small)
            yield KernelConfig(
                cell.variant, cell.dtype, rules.layout, cell.ndim, pipeline, rules.epilogue, scheduler,
                *row.tile, *pair.waves, pair.warp_m, pair.warp_n, warp_k, *widths,
                double_smem_buffer=pipeline == "compv4", specialization=specialization, **options,
            )  # fmt: skip


def _specializations(variant: str, tile: Triple) -> tuple[str, ...]:
    if variant != "forward":
        return "default", "filter1x1_stride1_pad0"
    if tile[2] == UNSPECIALIZED_TILE_K:
        return ("default",)
    known = ("default", "filter1x1_pad0", "filter1x1_stride1_pad0")
    return (*known, "filter3x3") if tile[0] * tile[1] <= LARGEST_FILTER3X3_TILE else known


def pairs_of(row: NamedTile, arch: str, dtype: str, specs: ArchSpecs) -> list[Pair]:
    """The pairs of the table that the arch can build, or all that tile the block if it can build none."""
    possible = structural_pairs(row.tile, arch, dtype, specs)
    wanted = [Pair(wave, side, side) for wave in row.waves for side in _sides(row, wave)]
    return [pair for pair in wanted if pair in possible] or possible


def structural_pairs(tile: Triple, arch: str, dtype: str, specs: ArchSpecs) -> list[Pair]:
    """Every pair that tiles m and n of the block with waves and warp tiles of the arch, in table order."""
    allowed = set(specs.arch(arch).waves)
    pairs = (
        Pair((waves_m, waves_n, waves_k), warp_m, warp_n)
        for warp_m, warp_n, _ in specs.warp_tiles(arch, dtype)
        for waves_m, waves_n, waves_k in product(_wave_counts(tile[0], warp_m), _wave_counts(tile[1], warp_n), WAVES_K)
    )
    return [pair for pair in dict.fromkeys(pairs) if pair.waves in allowed]


def warp_tile_k(kernel_tile: Triple, pair: Pair, is_float: bool, small: bool) -> int:
    """K of the warp tile; ``small`` asks for the form that stream-K and some wavelet kernels use."""
    tile_k, wide = kernel_tile[2], pair.warp_m == WIDE
    if small:
        return min(8 if wide else 16, tile_k // 4 if is_float else tile_k)
    if is_float:
        return min(4 if tile_k <= 16 else 8, tile_k)
    return min(16 if wide else 32, tile_k)


def _sides(row: NamedTile, wave: Triple) -> list[int]:
    """M = n of the warp tile: the table's exception, else 32 where that fits both sides of a wave's share."""
    if wave in row.warp_tile:
        return row.warp_tile[wave]
    fits = all(size % (waves * WIDE) == 0 for size, waves in zip(row.tile[:2], wave[:2], strict=True))
    return [WIDE if fits else NARROW]


def _wave_counts(size: int, warp: int) -> Iterator[int]:
    """Yield the waves that share ``size``, from most to fewest: the repeats of each divide what is there."""
    if size % warp == 0:
        warps = size // warp
        yield from (warps // repeats for repeats in range(1, warps + 1) if warps % repeats == 0)


def vectors_fit(vectors: Triple, tile: Triple, waves: Triple, element_bytes: float) -> bool:
    """Whether the threads of a block can load A (m, k) and B (n, k) evenly and store rows of C in vectors.

    The elements of A or B a thread loads must be a multiple of the vector, or the vector a multiple of them.
    """
    threads = THREADS_A_WAVE * waves[0] * waves[1] * waves[2]
    (rows_a, rows_b, depth), (vec_a, vec_b, vec_c) = tile, vectors
    if rows_a * depth % threads or rows_b * depth % threads:
        return False
    if any(width not in WIDTHS or width * element_bytes > MAX_BYTES for width in vectors):
        return False
    share_a, share_b = rows_a * depth // threads, rows_b * depth // threads
    return _commensurate(share_a, vec_a) and _commensurate(share_b, vec_b) and rows_b % vec_c == 0


def _commensurate(share: int, width: int) -> bool:
    return share % width == 0 or width % share == 0
