"""The depthwise forward kernel: a kind of its own beside the implicit GEMM, one channel a group, 2D.

``parse(name(kernel)) == kernel`` holds for every kernel. ``fault`` says why a kernel cannot run; ``DepthwiseConfig``
itself only refuses sizes that are no sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tileseer.conv.operation import DTYPES, ELEMENT_BYTES
from tileseer.core.grammar import Part, compiled
from tileseer.families.gemm_kernel import COUNT, END, Kernel, check_fields, choice, parsed

PREFIX = "grouped_conv_fwd_depthwise_"
LAYOUT = "ngchw"
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

    def __post_init__(self) -> None:
        check_fields(self, "depthwise kernel", [field.name for field in fields(self)[1:]])

    @property
    def name(self) -> str:
        """The kernel's name."""
        return name(self)

    @property
    def built_as(self) -> DepthwiseConfig:
        """The kernel itself: its layout has one label."""
        return self

    @property
    def pad(self) -> int:
        """Padding of both axes: (filter - 1) / 2, rounded down."""
        return (self.filter_size - 1) // 2


def name(kernel: DepthwiseConfig) -> str:
    """The kernel's name."""
    k = kernel
    return (
        f"{PREFIX}{k.dtype}_{LAYOUT}_{NDIM}d_{k.tile_h}x{k.tile_w}_f{k.filter_size}"
        f"_s{k.stride_h}x{k.stride_w}_p{k.pad}x{k.pad}_nb{k.batches}_sub{k.sub_h}x{k.sub_w}_vec{k.vec_in}_{k.vec_out}"
    )


_PARTS = (
    Part(PREFIX, PREFIX),
    choice("a data type", "dtype", DTYPES),
    Part(f"{LAYOUT}_{NDIM}d", f"{LAYOUT}_{NDIM}d"),
    Part("the tile (height x width, as _16x16)", rf"_{COUNT}x{COUNT}{END}"),
    Part("the filter (as _f3)", rf"_f{COUNT}{END}"),
    Part("the stride (as _s2x2)", rf"_s{COUNT}x{COUNT}{END}"),
    Part("the padding (as _p1x1)", rf"_p\d+x\d+{END}"),
    Part("the batches (as _nb2)", rf"_nb{COUNT}{END}"),
    Part("the sub-tile (as _sub1x4)", rf"_sub{COUNT}x{COUNT}{END}"),
    Part("the vectors (as _vec8_8)", rf"_vec{COUNT}_{COUNT}"),
)
_GRAMMAR = compiled(_PARTS)


def parse(text: str) -> DepthwiseConfig:
    """Kernel called ``text``; any text that ``name`` would not have written is a ``UserError``."""
    return parsed(text, _GRAMMAR, _PARTS, _kernel)


def _kernel(match: re.Match[str]) -> DepthwiseConfig:
    tile_h, tile_w, size, stride_h, stride_w, batches, *rest = map(int, match.groups()[1:])
    sub_h, sub_w, vec_in, vec_out = rest
    return DepthwiseConfig(
        match["dtype"], tile_h, tile_w, size, stride_h, stride_w, sub_h, sub_w, batches, vec_in, vec_out
    )


def fault(kernel: DepthwiseConfig) -> str:
    """Why the kernel cannot run, or an empty string.

    A wave of 64 threads holds whole images of sub-tiles; the padded input rows of them lie in LDS.
    """
    k = kernel
    if k.filter_size % 2 == 0 or k.pad < 1:
        return f"the filter is {k.filter_size} wide; it must be odd and at least 3"
    if any(vec & (vec - 1) for vec in (k.vec_in, k.vec_out)):
        return f"vectors of {k.vec_in} and {k.vec_out} elements; they must be powers of two"
    if k.sub_h > k.tile_h or k.sub_w > k.tile_w:
        return f"the sub-tile {k.sub_h}x{k.sub_w} is larger than the tile {k.tile_h}x{k.tile_w}"
    if k.stride_w != 1 and k.stride_w % 2:
        return f"stride_w is {k.stride_w}; it must be 1 or even"
    threads = math.ceil(k.tile_h / k.sub_h) * math.ceil(k.tile_w / k.sub_w)
    if threads > BLOCK_THREADS:
        return f"the tile needs {threads} threads; a block has {BLOCK_THREADS}"
    return _lds_fault(kernel, images=BLOCK_THREADS // threads)


def _lds_fault(k: DepthwiseConfig, images: int) -> str:
    """Check the padded input tile: a row of it is loaded by one wave, and all images of the wave fit into LDS."""
    step = min(k.vec_in, 4)
    if k.sub_w * k.stride_w % step:
        return f"a sub-tile row of {k.sub_w * k.stride_w} inputs is no multiple of {step} elements"
    width, height = k.tile_w * k.stride_w + 2 * k.pad, k.tile_h * k.stride_h + 2 * k.pad
    if math.ceil(width / k.vec_in) > BLOCK_THREADS:
        return f"an input row of {width} needs more than {BLOCK_THREADS} loads of {k.vec_in}"
    row = max(_round_up(width, k.vec_in), _round_up(width + k.pad, step))
    used = height * row * images * ELEMENT_BYTES[k.dtype]
    return f"the input tile takes {used} bytes of LDS; {LDS_BYTES} are there" if used > LDS_BYTES else ""


def _round_up(value: int, step: int) -> int:
    return math.ceil(value / step) * step
