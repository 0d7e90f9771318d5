"""A kernel, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tileseer.libraries.gemm_kernel import OPERATION_CHOICES, OPERATION_PARTS, GemmKernel
from tileseer.libraries.grammar import Part


@dataclass(frozen=True, order=True)
class ToyKernel(GemmKernel):
    """A block of one wave, with a tile of ``tile_m`` x ``tile_n``."""

    variant: str
    dtype: str
    ndim: int
    tile_m: int
    tile_n: int
    tile_k: int = 32
    wave_m: int = 1
    wave_n: int = 1
    wave_k: int = 1
    warp_tile_m: int = 16
    warp_tile_n: int = 16
    warp_tile_k: int = 16
    vec_a: int = 4
    vec_b: int = 4
    vec_c: int = 4
    pipeline: ClassVar[str] = "simple"
    choices: ClassVar = {**OPERATION_CHOICES, "dtype": ("bf16",)}
    parts: ClassVar = (Part("toy_conv_", "toy_conv_"), *OPERATION_PARTS, Part("the tile", "{tile_m}x{tile_n}"))
