"""The kernels and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from tileseer.core.grammar import Part, compiled
from tileseer.families.gemm_kernel import (
    COUNT,
    END,
    LONG_VARIANTS,
    SHORT_VARIANTS,
    GemmKernel,
    check_fields,
    choice,
    frame_of,
    parsed,
)


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
    choices: ClassVar = {"variant": tuple(SHORT_VARIANTS), "dtype": ("bf16",), "ndim": (2, 3)}

    def __post_init__(self):
        check_fields(self, "toy kernel", ("tile_m", "tile_n"))

    @property
    def name(self):
        return f"toy_conv_{SHORT_VARIANTS[self.variant]}_{self.dtype}_{self.ndim}d_{self.tile_m}x{self.tile_n}"


KERNEL = ToyKernel
FIELDS = tuple(field.name for field in fields(ToyKernel))
_PARTS = (
    Part("toy_conv_", "toy_conv_"),
    choice("a direction", "variant", tuple(SHORT_VARIANTS.values())),
    choice("a data type", "dtype", ("bf16",)),
    Part("the dimensionality (2d, 3d)", r"(?P<ndim>[23])d_"),
    Part("the tile", rf"(?P<m>{COUNT})x(?P<n>{COUNT}){END}"),
)
_GRAMMAR = compiled(_PARTS)


def parse(text: str) -> ToyKernel:
    return parsed(text, _GRAMMAR, _PARTS, _kernel)


def _kernel(match: re.Match[str]) -> ToyKernel:
    return ToyKernel(
        LONG_VARIANTS[match["variant"]], match["dtype"], int(match["ndim"]), int(match["m"]), int(match["n"])
    )


def frame(kernels: Sequence[ToyKernel]):
    return frame_of(kernels, (*FIELDS, "pipeline"))
