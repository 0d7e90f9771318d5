"""What the kernels of every library have in common: fields of one meaning have one name, and names one grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from tileseer.core.errors import UserError
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.grammar import Grammar, Part

if TYPE_CHECKING:
    import pandas as pd

OPERATION_CHOICES: Mapping[str, Sequence[Any]] = {"variant": VARIANTS, "dtype": DTYPES, "ndim": (2, 3)}
OPERATION_PARTS = (
    Part("a direction", "{variant}_"),
    Part("a data type", "{dtype}_"),
    Part("the dimensionality", "{ndim}d_"),
)
"""What kernels of libraries have that choose the layout themselves."""
SIZES = ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k")
"""The sizes that every kernel has, in the order in which names tell them."""
SIZE_PARTS = (
    Part("the block tile (m x n x k, as 64x128x64)", "{tile_m}x{tile_n}x{tile_k}_"),
    Part("the waves per block (m x n x k, as 2x2x1)", "{wave_m}x{wave_n}x{wave_k}_"),
    Part("the warp tile (m x n x k, as 32x32x16)", "{warp_tile_m}x{warp_tile_n}x{warp_tile_k}"),
)


class Kernel:
    """One convolution kernel of some library, as it is compiled: the base of frozen dataclasses."""

    variant: str
    dtype: str
    ndim: int
    kind: ClassVar[str] = "implicit_gemm"
    """A library may have several kinds; its models know that of ``Library.kernel`` only."""
    short: ClassVar[str] = ""
    """Field that alone names a kernel where direction, data type and dimensionality are known; empty: none does."""
    short_names: ClassVar[Sequence[str]] = ()
    """The values of that field that are known as such names."""
    choices: ClassVar[Mapping[str, Sequence[Any]]]
    """Words and numbers that a field may have; every other number is at least 1."""
    patterns: ClassVar[Mapping[str, str]] = {}
    """Regular expressions of fields that are a text of a form, not one of some words."""
    parts: ClassVar[Sequence[Part]]
    """Of names."""

    def __post_init__(self) -> None:
        for field, allowed in self.choices.items():
            if getattr(self, field) not in allowed:
                raise UserError(
                    f"kernel: {field} is {getattr(self, field)!r}; use one of {', '.join(map(str, allowed))}"
                )
        for field in _counts(cast(Any, type(self))):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"kernel: {field} is {value!r}; it must be a positive int")

    # Kept: nothing is asked of a kernel more often.
    @cached_property
    def name(self) -> str:
        """The kernel's name, which says every field."""
        return _grammar(cast(Any, type(self))).name(self)

    @property
    def built_as(self) -> Self:
        """The kernel under the name that it is emitted with; foreign rule sets may label its layout otherwise."""
        return self

    # Kept: features are made of the same names for each model of a cross-validation.
    @classmethod
    @lru_cache(maxsize=1 << 15)
    def parse(cls, text: str) -> Self:
        """Return the kernel called ``text``; any text that is not exactly its name is a ``UserError``."""
        return cast(Self, _grammar(cast(Any, cls)).parse(text))

    @classmethod
    def frame(cls, kernels: Sequence[Self]) -> pd.DataFrame:
        """Return a row a kernel: ``kernel`` (its name), every field, and ``pipeline``, the main loop in a word."""
        # Imported here: pandas takes half a second, and most stages know kernels without it.
        import pandas as pd

        columns = tuple(dict.fromkeys(("name", *field_types(cls), "pipeline")))
        rows = [[getattr(kernel, column) for column in columns] for kernel in kernels]
        return pd.DataFrame(rows, columns=["kernel", *columns[1:]])


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


def field_types(kernel: type[Kernel]) -> dict[str, str]:
    """Name of the type of each field: ``str``, ``int`` or ``bool``, in field order."""
    return {field.name: str(field.type) for field in fields(cast(Any, kernel))}


@cache
def _counts(kernel: Any) -> tuple[str, ...]:
    return tuple(name for name, kind in field_types(kernel).items() if kind == "int" and name not in kernel.choices)


@cache
def _grammar(kernel: Any) -> Grammar[Any]:
    return Grammar(kernel)
