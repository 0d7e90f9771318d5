"""Which waves and warp tiles a block tile is built from in the rule set ``full``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.gpu.arch import ArchSpecs, Triple
from tileseer.reference.named_tables import TileRow

WIDE, NARROW = 32, 16
"""Usual sides of a square warp tile."""
WAVES_K = (1, 2)


@dataclass(frozen=True)
class Pair:
    """A wave layout (m, n, k) and the m and n of a warp tile; the warp tile's k depends on the kernel."""

    waves: Triple
    warp_m: int
    warp_n: int


def pairs_of(row: TileRow, arch: str, dtype: str, specs: ArchSpecs) -> list[Pair]:
    """Return the pairs of the table that the arch can build, or all that tile the block if it can build none."""
    possible = structural_pairs(row.tile, arch, dtype, specs)
    wanted = [Pair(wave, side, side) for wave in row.waves for side in _sides(row, wave)]
    return [pair for pair in wanted if pair in possible] or possible


def structural_pairs(tile: Triple, arch: str, dtype: str, specs: ArchSpecs) -> list[Pair]:
    """Return every pair that tiles m and n of the block with waves and warp tiles of the arch, in table order."""
    found: dict[Pair, None] = {}
    allowed = set(specs.waves(arch))
    for warp_m, warp_n, _ in specs.warp_tiles(arch, dtype):
        for waves_m in _wave_counts(tile[0], warp_m):
            for waves_n in _wave_counts(tile[1], warp_n):
                for waves_k in WAVES_K:
                    if (waves_m, waves_n, waves_k) in allowed:
                        found[Pair((waves_m, waves_n, waves_k), warp_m, warp_n)] = None
    return list(found)


def warp_tile_k(kernel_tile: Triple, pair: Pair, is_float: bool, small: bool) -> int:
    """Return k of the warp tile; ``small`` asks for the form that stream-K and some wavelet kernels use."""
    tile_k, wide = kernel_tile[2], pair.warp_m == WIDE
    if small:
        return min(8 if wide else 16, tile_k // 4 if is_float else tile_k)
    if is_float:
        return min(4 if tile_k <= 16 else 8, tile_k)
    return min(16 if wide else 32, tile_k)


def tile_divides(kernel: KernelConfig) -> bool:
    """Tell whether the tile is a whole multiple of waves x warp tile in m, n and k."""
    sizes = zip(kernel.tile, kernel.wave, kernel.warp_tile, strict=True)
    return all(tile % (wave * warp) == 0 for tile, wave, warp in sizes)


def _sides(row: TileRow, wave: Triple) -> list[int]:
    """Return m = n of the warp tile: the table's exception, else 32 where that fits both sides of a wave's share."""
    if wave in row.warp_tile:
        return row.warp_tile[wave]
    fits = all(size % (waves * WIDE) == 0 for size, waves in zip(row.tile[:2], wave[:2], strict=True))
    return [WIDE if fits else NARROW]


def _wave_counts(size: int, warp: int) -> Iterator[int]:
    """Yield the waves that share ``size``, from most to fewest: the repeats of each divide what is there."""
    if size % warp == 0:
        warps = size // warp
        yield from (warps // repeats for repeats in range(1, warps + 1) if warps % repeats == 0)
