"""The kernels and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tileseer.conv.operation import VARIANTS
from tileseer.families.gemm_kernel import GemmKernel, field_types
from tileseer.families.grammar import Part


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
    choices: ClassVar = {"variant": VARIANTS, "dtype": ("bf16",), "ndim": (2, 3)}

    parts: ClassVar = (
        Part("toy_conv_", "toy_conv_"),
        Part("a direction", "{variant}_"),
        Part("a data type", "{dtype}_"),
        Part("the dimensionality", "{ndim}d_"),
        Part("the tile", "{tile_m}x{tile_n}"),
    )


KERNEL = ToyKernel
FIELDS = tuple(field_types(ToyKernel))
parse, frame = ToyKernel.parse, ToyKernel.frame
