"""The depthwise forward kernel: a kind of its own beside the implicit GEMM, one channel a group, 2D.

``parse(kernel.name) == kernel`` holds for every kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tileseer.facts.operations import DTYPES
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.grammar import Part

DEPTHWISE_PREFIX = "grouped_conv_fwd_depthwise_"
DEPTHWISE_LAYOUT = "ngchw"
NDIM = 2
VARIANT = "forward"
BLOCK_THREADS = 64


@dataclass(frozen=True, order=True)
class DepthwiseConfig(Kernel):
    """One depthwise kernel. The block computes ``tile_h`` x ``tile_w`` outputs, a thread ``sub_h`` x ``sub_w``.

    Dilation is 1; the padding follows from the filter. ``vec_in`` and ``vec_out`` are elements a load and a store.
    """

    dtype: str
    tile_h: int
    tile_w: int
    filter_size: int
    stride_h: int
    stride_w: int
    sub_h: int
    sub_w: int
    batches: int
    vec_in: int
    vec_out: int

    variant: ClassVar[str] = VARIANT  # type: ignore[misc]
    ndim: ClassVar[int] = NDIM  # type: ignore[misc]
    kind: ClassVar[str] = "depthwise"
    block: ClassVar[int] = BLOCK_THREADS
    choices: ClassVar[Mapping[str, Sequence[Any]]] = {"dtype": DTYPES}
    parts: ClassVar[Sequence[Part]] = (
        Part(DEPTHWISE_PREFIX, DEPTHWISE_PREFIX),
        Part("a data type", "{dtype}_"),
        Part(f"{DEPTHWISE_LAYOUT}_{NDIM}d", f"{DEPTHWISE_LAYOUT}_{NDIM}d"),
        Part("the tile (height x width, as _16x16)", "_{tile_h}x{tile_w}"),
        Part("the filter (as _f3)", "_f{filter_size}"),
        Part("the stride (as _s2x2)", "_s{stride_h}x{stride_w}"),
        Part("the padding (as _p1x1)", "_p{pad}x{pad}"),
        Part("the batches (as _nb2)", "_nb{batches}"),
        Part("the sub-tile (as _sub1x4)", "_sub{sub_h}x{sub_w}"),
        Part("the vectors (as _vec8_8)", "_vec{vec_in}_{vec_out}"),
    )

    @property
    def pad(self) -> int:
        """Padding of both axes: (filter - 1) / 2, rounded down."""
        return (self.filter_size - 1) // 2
