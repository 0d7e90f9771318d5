"""What the kernels of every family have in common: fields of one meaning have one name, and names one grammar."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from tileseer.core.errors import UserError
from tileseer.core.grammar import Part, broken

if TYPE_CHECKING:
    import pandas as pd

AnyKernel = TypeVar("AnyKernel", bound="Kernel")

SIZES = ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k")
"""The sizes that every kernel has, in the order in which names tell them."""
VECTORS = ("vec_a", "vec_b", "vec_c")
SHORT_VARIANTS = {"forward": "fwd", "bwd_data": "bwd_data", "bwd_weight": "bwd_weight"}
"""Directions as names spell them."""
LONG_VARIANTS = {short: variant for variant, short in SHORT_VARIANTS.items()}


class Kernel(ABC):
    """One convolution kernel of some family, as it is compiled: a frozen dataclass."""

    variant: str
    dtype: str
    ndim: int
    kind: ClassVar[str] = "implicit_gemm"
    """A family may have other kinds; models know implicit GEMMs only."""
    choices: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Words and numbers that a field may have."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel's name, which says every field."""


class GemmKernel(Kernel):
    """An implicit GEMM that is cut into tiles.

    Tiles, waves (of 64 or 32 lanes) and warp tiles (the matrix instruction) are (m, n, k) of the GEMM; vectors are
    elements a load or store of A, B, C.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    wave_m: int
    wave_n: int
    wave_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int
    vec_a: int
    vec_b: int
    vec_c: int

    @property
    def tile(self) -> tuple[int, int, int]:
        """Block tile (m, n, k)."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def wave(self) -> tuple[int, int, int]:
        """Waves a block (m, n, k)."""
        return self.wave_m, self.wave_n, self.wave_k

    @property
    def warp_tile(self) -> tuple[int, int, int]:
        """Matrix instruction tile (m, n, k)."""
        return self.warp_tile_m, self.warp_tile_n, self.warp_tile_k

    @property
    def vectors(self) -> tuple[int, int, int]:
        """Elements a vector load of A and B and a vector store of C."""
        return self.vec_a, self.vec_b, self.vec_c


def check_fields(kernel: Kernel, what: str, counts: Sequence[str]) -> None:
    """Raise ``UserError`` where a field is none of its choices, or a count is no positive int."""
    for field, allowed in kernel.choices.items():
        if getattr(kernel, field) not in allowed:
            known = ", ".join(map(str, allowed))
            raise UserError(f"{what}: {field} is {getattr(kernel, field)!r}; use one of {known}")
    for field in counts:
        value = getattr(kernel, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{what}: {field} is {value!r}; it must be a positive int")


def sizes(values: Sequence[int]) -> dict[str, int]:
    """Tile, waves and warp tile, (m, n, k) each and one after another, by the names of their fields."""
    return dict(zip(SIZES, values, strict=True))


def field_types(kernel: type[Kernel]) -> dict[str, str]:
    """Name of the type of each field: ``str``, ``int`` or ``bool``, in field order."""
    return {field.name: str(field.type) for field in fields(cast(Any, kernel))}


def parsed(
    text: str, grammar: re.Pattern[str], parts: Sequence[Part], kernel_of: Callable[[re.Match[str]], AnyKernel]
) -> AnyKernel:
    """Kernel called ``text``; any text that is not exactly its name is a ``UserError``.

    ``grammar`` is compiled of ``parts``, and ``kernel_of`` makes the kernel of what it finds.
    """
    match = grammar.fullmatch(text)
    if not match:
        raise UserError(f"kernel name {text!r}: {broken(text, parts)}\n(the grammar is in docs/kernel-names.md)")
    kernel = kernel_of(match)
    if kernel.name != text:
        raise UserError(f"kernel name {text!r} is not canonical; the kernel is called {kernel.name!r}")
    return kernel


def sizes_behind(match: re.Match[str], group: str) -> dict[str, int]:
    """Sizes that ``SIZE_PARTS`` found right behind a group."""
    first = match.re.groupindex[group] + 1
    return sizes([int(match.group(first + i)) for i in range(len(SIZES))])


def frame_of(kernels: Sequence[Kernel], fields: Sequence[str]) -> pd.DataFrame:
    """One row a kernel: ``kernel`` (its name) and some of its fields and properties."""
    # Imported here: pandas takes half a second, and most stages know kernels without it.
    import pandas as pd

    rows = [[kernel.name, *(getattr(kernel, field) for field in fields)] for kernel in kernels]
    return pd.DataFrame(rows, columns=["kernel", *fields])


def either(values: Sequence[str]) -> str:
    """Pattern of any of the words."""
    # Longest first: one may be the beginning of another.
    return "|".join(sorted(values, key=len, reverse=True))


def choice(what: str, group: str, values: Sequence[str]) -> Part:
    """Part of a name that is one of some words, with the ``_`` behind it."""
    return Part(f"{what} ({', '.join(values)})", rf"(?P<{group}>{either(values)})_")


COUNT = r"([1-9]\d*)"
TRIPLE = rf"{COUNT}x{COUNT}x{COUNT}"
END = r"(?![^_])"
"""Behind a part that ends with a number or a word: nothing or the next part."""
VECTOR_PART = Part("_vecA_B_C", rf"(?P<vec>_vec(\d+)_(\d+)_(\d+)){END}", optional=True)
SIZE_PARTS = (
    Part("the block tile (m x n x k, as 64x128x64)", f"{TRIPLE}_"),
    Part("the waves a block (m x n x k, as 2x2x1)", f"{TRIPLE}_"),
    Part("the warp tile (m x n x k, as 32x32x16)", f"{TRIPLE}{END}"),
)
