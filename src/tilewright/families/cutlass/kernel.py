"""A CUTLASS convolution kernel and its name; ``parse(name(kernel)) == kernel`` holds for every valid kernel.

Fields that mean the same as in CK Tile carry the same names, so that one definition of the learning features serves
both families: ``wave`` are the warps of a block, ``warp_tile`` the shape of one matrix instruction, ``vec`` the
elements of one access. What only CUTLASS has stands at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tilewright.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "cutlass_conv_"
VARIANTS = {"forward": "fwd", "bwd_data": "bwd_data", "bwd_weight": "bwd_weight"}
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

CHOICES = {
    "variant": tuple(VARIANTS), "dtype": DTYPES, "ndim": tuple(LAYOUTS), "iterator": ITERATORS,
    "swizzle": SWIZZLES, "strides": STRIDES, "group_mode": GROUPS,
    "vec_a": VECTOR_WIDTHS, "vec_b": VECTOR_WIDTHS, "vec_c": VECTOR_WIDTHS,
}  # fmt: skip
_COUNTS = ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k")


@dataclass(frozen=True, order=True)
class CutlassKernel:
    """One kernel as it is compiled. Tiles, waves and warp tiles are (m, n, k) of the implicit GEMM."""

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

    def __post_init__(self) -> None:
        for field, allowed in CHOICES.items():
            if getattr(self, field) not in allowed:
                known = ", ".join(map(str, allowed))
                raise UserError(f"cutlass kernel: {field} is {getattr(self, field)!r}; use one of {known}")
        for field in (*_COUNTS, "stages"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"cutlass kernel: {field} is {value!r}; it must be a positive int")
        if (self.variant == "bwd_data") != (self.strides != "any"):
            raise UserError(
                f"cutlass kernel: strides is {self.strides!r} for {self.variant}; "
                "write unity or strided for bwd_data and any for the others"
            )

    @property
    def tile(self) -> tuple[int, int, int]:
        """Block tile (m, n, k)."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def wave(self) -> tuple[int, int, int]:
        """Warps of a block (m, n, k)."""
        return self.wave_m, self.wave_n, self.wave_k

    @property
    def warp_tile(self) -> tuple[int, int, int]:
        """Matrix instruction (m, n, k)."""
        return self.warp_tile_m, self.warp_tile_n, self.warp_tile_k

    @property
    def vectors(self) -> tuple[int, int, int]:
        """Elements of one load of A and B and of one store of C."""
        return self.vec_a, self.vec_b, self.vec_c

    @property
    def warp_shape(self) -> tuple[int, int, int]:
        """Part of the block tile that one warp computes (m, n, k)."""
        m, n, k = (tile // warps for tile, warps in zip(self.tile, self.wave, strict=True))
        return m, n, k

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the operand buffers of all stages, bytes."""
        return (self.tile_m + self.tile_n) * self.tile_k * 2 * self.stages


FIELDS = tuple(field.name for field in fields(CutlassKernel))


def name(kernel: CutlassKernel) -> str:
    """Return the kernel's name; every field is in it, in one order."""
    k = kernel
    sizes = "_".join("x".join(map(str, triple)) for triple in (k.tile, k.wave, k.warp_tile))
    strides = "" if k.strides == "any" else f"_{k.strides}"
    groups = "" if k.group_mode == "none" else f"_{k.group_mode}group"
    return (
        f"{PREFIX}{VARIANTS[k.variant]}_{k.dtype}_{LAYOUTS[k.ndim]}_{k.ndim}d_{k.iterator}_{sizes}_s{k.stages}"
        f"_swz{k.swizzle}_vec{k.vec_a}_{k.vec_b}_{k.vec_c}{strides}{groups}"
    )


def sizes(values: Sequence[int]) -> dict[str, int]:
    """Return block tile, warps and instruction, (m, n, k) each and one after another, by the names of their fields."""
    return dict(zip(_COUNTS, values, strict=True))


def _either(values: tuple[str, ...]) -> str:
    return "|".join(values)


_COUNT = r"([1-9]\d*)"
_TRIPLE = rf"{_COUNT}x{_COUNT}x{_COUNT}"
_GRAMMAR = re.compile(
    rf"{PREFIX}(?P<variant>{_either(tuple(VARIANTS.values()))})_(?P<dtype>{_either(DTYPES)})"
    rf"_(?P<layout>{_either(tuple(LAYOUTS.values()))})_(?P<ndim>[23])d_(?P<iterator>{_either(ITERATORS)})"
    rf"_{_TRIPLE}_{_TRIPLE}_{_TRIPLE}_s(?P<stages>{_COUNT})_swz(?P<swizzle>{_COUNT})"
    r"_vec(?P<a>\d+)_(?P<b>\d+)_(?P<c>\d+)"
    rf"(?:_(?P<strides>{_either(STRIDES[1:])}))?(?:_(?P<groups>{_either(GROUPS[1:])})group)?",
    re.ASCII,
)


def parse(text: str) -> CutlassKernel:
    """Return the kernel called ``text``; any text that ``name`` would not have written is a ``UserError``."""
    match = _GRAMMAR.fullmatch(text)
    if not match:
        raise UserError(f"kernel name {text!r} does not follow the grammar of docs/kernel-names.md")
    long_variant = {short: variant for variant, short in VARIANTS.items()}
    first = _GRAMMAR.groupindex["iterator"] + 1
    kernel = CutlassKernel(
        long_variant[match["variant"]], match["dtype"], int(match["ndim"]), match["iterator"],
        **sizes([int(match.group(first + i)) for i in range(len(_COUNTS))]),
        stages=int(match["stages"]), swizzle=int(match["swizzle"]),
        vec_a=int(match["a"]), vec_b=int(match["b"]), vec_c=int(match["c"]),
        strides=match["strides"] or "any", group_mode=match["groups"] or "none",
    )  # fmt: skip
    if name(kernel) != text:
        raise UserError(f"kernel name {text!r} is not canonical; the kernel is called {name(kernel)!r}")
    return kernel


def frame(names: Sequence[str]) -> pd.DataFrame:
    """Return one row a kernel name: every field of ``CutlassKernel``, and ``pipeline``, its main loop in a word."""
    # Imported here: pandas takes half a second, and most callers know kernels without it.
    import pandas as pd

    kernels = [parse(name) for name in names]
    table = pd.DataFrame([[getattr(k, field) for field in FIELDS] for k in kernels], columns=list(FIELDS))
    table["pipeline"] = [f"{k.iterator}_s{k.stages}" for k in kernels]
    return table
