"""A CUTLASS convolution kernel and its name; ``parse(name(kernel)) == kernel`` holds for every valid kernel.

Fields that mean the same as in CK Tile carry the same names, so that one definition of the learning features serves
both families: ``wave`` are the warps of a block, ``warp_tile`` the shape of one matrix instruction, ``vec`` the
elements of one access. What only CUTLASS has stands at the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tileseer.conv.operation import VARIANTS
from tileseer.core.errors import UserError
from tileseer.core.grammar import Part, compiled
from tileseer.families import gemm_kernel as gemm

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "cutlass_conv_"
DTYPES = ("fp16", "bf16")
LAYOUTS = {2: "nhwc", 3: "ndhwc"}
ITERATORS = ("optimized", "analytic")
SWIZZLES = (1, 4, 8)
STRIDES = ("any", "unity", "strided")
"""``any`` forward and for the weight gradient; an input gradient is written for stride 1 or for every stride."""
GROUPS = ("none", "single", "multiple")
"""Groups that one block computes; ``none``: the kernel knows no groups."""
VECTOR_WIDTHS = (1, 2, 4, 8)
INSTRUCTION = (16, 8, 16)
"""The tensor-core instruction of 16-bit operands that the CUTLASS 2.x templates use (m, n, k)."""


@dataclass(frozen=True, order=True)
class CutlassKernel(gemm.GemmKernel):
    """One kernel as it is compiled; see ``GemmKernel`` for its sizes."""

    variant: str
    dtype: str
    ndim: int
    iterator: str
    tile_m: int
    tile_n: int
    tile_k: int
    wave_m: int
    wave_n: int
    wave_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int
    stages: int
    swizzle: int = 1
    vec_a: int = 8
    vec_b: int = 8
    vec_c: int = 8
    strides: str = "any"
    group_mode: str = "none"

    choices: ClassVar[Mapping[str, Sequence[Any]]] = {
        "variant": VARIANTS, "dtype": DTYPES, "ndim": tuple(LAYOUTS), "iterator": ITERATORS,
        "swizzle": SWIZZLES, "strides": STRIDES, "group_mode": GROUPS,
        "vec_a": VECTOR_WIDTHS, "vec_b": VECTOR_WIDTHS, "vec_c": VECTOR_WIDTHS,
    }  # fmt: skip

    def __post_init__(self) -> None:
        gemm.check_fields(self, "cutlass kernel", (*gemm.SIZES, "stages"))
        if (self.variant == "bwd_data") != (self.strides != "any"):
            raise UserError(
                f"cutlass kernel: strides is {self.strides!r} for {self.variant}; "
                "write unity or strided for bwd_data and any for the others"
            )

    @property
    def name(self) -> str:
        """The kernel's name."""
        return name(self)

    @property
    def pipeline(self) -> str:
        """The main loop in a word."""
        return f"{self.iterator}_s{self.stages}"

    @property
    def warp_shape(self) -> tuple[int, int, int]:
        """Part of the block tile that one warp computes (m, n, k)."""
        m, n, k = (tile // warps for tile, warps in zip(self.tile, self.wave, strict=True))
        return m, n, k

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the operand buffers of all stages, bytes."""
        return shared_bytes(self.tile_m, self.tile_n, self.tile_k, self.stages)


KERNEL = CutlassKernel
FIELDS = tuple(field.name for field in fields(CutlassKernel))


def shared_bytes(tile_m: int, tile_n: int, tile_k: int, stages: int) -> int:
    """Shared memory of the operand buffers of all stages, bytes; elements have two."""
    return (tile_m + tile_n) * tile_k * 2 * stages


def name(kernel: CutlassKernel) -> str:
    """The kernel's name; every field is in it, in one order."""
    k = kernel
    triples = "_".join("x".join(map(str, triple)) for triple in (k.tile, k.wave, k.warp_tile))
    strides = "" if k.strides == "any" else f"_{k.strides}"
    groups = "" if k.group_mode == "none" else f"_{k.group_mode}group"
    return (
        f"{PREFIX}{gemm.SHORT_VARIANTS[k.variant]}_{k.dtype}_{LAYOUTS[k.ndim]}_{k.ndim}d_{k.iterator}_{triples}_s{k.stages}"
        f"_swz{k.swizzle}_vec{k.vec_a}_{k.vec_b}_{k.vec_c}{strides}{groups}"
    )


_PARTS = (
    Part(PREFIX, PREFIX),
    gemm.choice("a direction", "variant", tuple(gemm.SHORT_VARIANTS.values())),
    gemm.choice("a data type", "dtype", DTYPES),
    gemm.choice("a layout", "layout", tuple(LAYOUTS.values())),
    Part("the dimensionality (2d, 3d)", r"(?P<ndim>[23])d_"),
    gemm.choice("an iterator", "iterator", ITERATORS),
    *gemm.SIZE_PARTS,
    Part("the stages (as s4)", rf"_s(?P<stages>{gemm.COUNT}){gemm.END}"),
    Part("the swizzle (as swz1)", rf"_swz(?P<swizzle>{gemm.COUNT}){gemm.END}"),
    Part("the vectors (as vec8_8_8)", rf"_vec(?P<a>\d+)_(?P<b>\d+)_(?P<c>\d+){gemm.END}"),
    Part("the strides", rf"_(?P<strides>{gemm.either(STRIDES[1:])}){gemm.END}", optional=True),
    Part("the group mode", rf"_(?P<groups>{gemm.either(GROUPS[1:])})group{gemm.END}", optional=True),
)
_GRAMMAR = compiled(_PARTS)


def parse(text: str) -> CutlassKernel:
    """Kernel called ``text``; any text that ``name`` would not have written is a ``UserError``."""
    return gemm.parsed(text, _GRAMMAR, _PARTS, _kernel)


def _kernel(match: re.Match[str]) -> CutlassKernel:
    return CutlassKernel(
        gemm.LONG_VARIANTS[match["variant"]], match["dtype"], int(match["ndim"]), match["iterator"],
        **gemm.sizes_behind(match, "iterator"), stages=int(match["stages"]), swizzle=int(match["swizzle"]),
        vec_a=int(match["a"]), vec_b=int(match["b"]), vec_c=int(match["c"]),
        strides=match["strides"] or "any", group_mode=match["groups"] or "none",
    )  # fmt: skip


def frame(kernels: Sequence[CutlassKernel]) -> pd.DataFrame:
    """One row a kernel: ``kernel`` (its name), every field of ``CutlassKernel``, and ``pipeline``."""
    return gemm.frame_of(kernels, (*FIELDS, "pipeline"))
