"""The depthwise forward kernel: a kind of its own beside the implicit GEMM, one channel a group, 2D.

``parse(kernel.name) == kernel`` holds for every kernel. ``fault`` says why a kernel cannot run; ``DepthwiseConfig``
itself only refuses sizes that are no sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tileseer.facts.operations import DTYPES, ELEMENT_BYTES
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.grammar import Part

DEPTHWISE_PREFIX = "grouped_conv_fwd_depthwise_"
DEPTHWISE_LAYOUT = "ngchw"
NDIM = 2
VARIANT = "forward"
BLOCK_THREADS = 64
LDS_BYTES = 65536


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


def depthwise_fault(k: DepthwiseConfig) -> str:
    """Return why the kernel cannot run, or an empty string.

    A wave of 64 threads holds whole images of sub-tiles; the padded input rows of them lie in LDS. A row is loaded by
    one wave, and all images of the wave fit into LDS.
    """
    threads = math.ceil(k.tile_h / k.sub_h) * math.ceil(k.tile_w / k.sub_w)
    step = min(k.vec_in, 4)
    width, height = k.tile_w * k.stride_w + 2 * k.pad, k.tile_h * k.stride_h + 2 * k.pad
    row = max(_round_up(width, k.vec_in), _round_up(width + k.pad, step))
    used = height * row * (BLOCK_THREADS // threads) * ELEMENT_BYTES[k.dtype]
    faults = {
        f"the filter is {k.filter_size} wide; it must be odd and at least 3": k.filter_size % 2 == 0 or k.pad < 1,
        f"vectors of {k.vec_in} and {k.vec_out} elements; they must be powers of two": any(
            vec & (vec - 1) for vec in (k.vec_in, k.vec_out)
        ),
        f"the sub-tile {k.sub_h}x{k.sub_w} is larger than the tile {k.tile_h}x{k.tile_w}": (
            k.sub_h > k.tile_h or k.sub_w > k.tile_w
        ),
        f"stride_w is {k.stride_w}; it must be 1 or even": k.stride_w != 1 and k.stride_w % 2,
        f"the tile needs {threads} threads; a block has {BLOCK_THREADS}": threads > BLOCK_THREADS,
        f"a sub-tile row of {k.sub_w * k.stride_w} inputs is no multiple of {step} elements": k.sub_w
        * k.stride_w
        % step,
        f"an input row of {width} needs more than {BLOCK_THREADS} loads of {k.vec_in}": (
            math.ceil(width / k.vec_in) > BLOCK_THREADS
        ),
        f"the input tile takes {used} bytes of LDS; {LDS_BYTES} are available": used > LDS_BYTES,
    }
    return next((reason for reason, fails in faults.items() if fails), "")


def _round_up(value: int, step: int) -> int:
    return math.ceil(value / step) * step
