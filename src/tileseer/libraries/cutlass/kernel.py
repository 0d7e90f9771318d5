"""A CUTLASS convolution kernel and its name; ``parse(kernel.name) == kernel`` holds for every valid kernel.

Fields that mean the same as in CK Tile carry the same names, so that one definition of the learning features serves
both libraries: ``wave`` are the warps of a block, ``warp_tile`` the shape of one matrix instruction, ``vec`` the
elements of one access. What only CUTLASS has comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.libraries import gemm_kernel as gemm
from tileseer.libraries.grammar import Part

CUTLASS_PREFIX = "cutlass_conv_"
HALF_TYPES = ("fp16", "bf16")
LAYOUT_OF_NDIM = {2: "nhwc", 3: "ndhwc"}
ITERATORS = ("optimized", "analytic")
SWIZZLES = (1, 4, 8)
STRIDES = ("any", "unity", "strided")
"""``any`` forward and for the weight gradient; an input gradient is written for stride 1 or for every stride."""
GROUPS = ("none", "single", "multiple")
"""Groups that one block computes; ``none``: the kernel knows no groups."""
CUTLASS_VECTOR_WIDTHS = (1, 2, 4, 8)
INSTRUCTION_SHAPE = (16, 8, 16)
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
        "variant": VARIANTS, "dtype": HALF_TYPES, "ndim": tuple(LAYOUT_OF_NDIM),
        "layout": tuple(LAYOUT_OF_NDIM.values()),
        "iterator": ITERATORS, "swizzle": SWIZZLES, "strides": STRIDES, "group_mode": GROUPS,
        "vec_a": CUTLASS_VECTOR_WIDTHS, "vec_b": CUTLASS_VECTOR_WIDTHS, "vec_c": CUTLASS_VECTOR_WIDTHS,
    }  # fmt: skip
    parts: ClassVar[Sequence[Part]] = (
        Part(CUTLASS_PREFIX, CUTLASS_PREFIX),
        Part("a direction", "{variant}_"),
        Part("a data type", "{dtype}_"),
        Part("a layout", "{layout}_"),
        Part("the dimensionality", "{ndim}d_"),
        Part("an iterator", "{iterator}_"),
        *gemm.SIZE_PARTS,
        Part("the stages (as _s4)", "_s{stages}"),
        Part("the swizzle (as _swz1)", "_swz{swizzle}"),
        Part("the vectors (as _vec8_8_8)", "_vec{vec_a}_{vec_b}_{vec_c}"),
        Part("the strides", "_{strides}", optional=True),
        Part("the group mode", "_{group_mode}group", optional=True),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.variant == "bwd_data") != (self.strides != "any"):
            raise UserError(
                f"kernel: strides is {self.strides!r} for {self.variant}; "
                "write unity or strided for bwd_data and any for the others"
            )

    @property
    def layout(self) -> str:
        """Order of the tensors' dimensions."""
        return LAYOUT_OF_NDIM[self.ndim]

    @property
    def pipeline(self) -> str:
        """The main loop in a word."""
        return f"{self.iterator}_s{self.stages}"

    @property
    def warp_shape(self) -> tuple[int, int, int]:
        """Part of the block tile that one warp computes (m, n, k); the templates write it."""
        m, n, k = (tile // warps for tile, warps in zip(self.tile, self.wave, strict=True))
        return m, n, k


def shared_bytes(columns: Any) -> Any:
    """Return the bytes of shared memory of all stages' buffers of 16-bit elements; ``columns``: fields of kernels."""
    return (columns["tile_m"] + columns["tile_n"]) * columns["tile_k"] * 2 * columns["stages"]
