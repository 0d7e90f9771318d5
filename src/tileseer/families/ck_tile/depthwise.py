"""The depthwise forward kernel: one channel a group, 2D, a kernel family beside the implicit GEMM.

``parse(name(kernel)) == kernel`` holds for every kernel, as in ``tileseer.families.ck_tile.kernel``. ``fault`` says why
a kernel cannot run; ``DepthwiseConfig`` itself only refuses sizes that are no sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from tileseer.conv.operation import DTYPES, ELEMENT_BYTES
from tileseer.core.errors import UserError
from tileseer.core.grammar import Part, broken, compiled

LAYOUT = "ngchw"
NDIM = 2
VARIANT = "forward"
BLOCK_THREADS = 64
LDS_BYTES = 65536


@dataclass(frozen=True, order=True)
class DepthwiseConfig:
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

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UserError(f"depthwise kernel: dtype is {self.dtype!r}; use one of {', '.join(DTYPES)}")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"depthwise kernel: {field.name} is {value!r}; it must be a positive int")

    @property
    def pad(self) -> int:
        """Padding of both axes: (filter - 1) / 2, rounded down."""
        return (self.filter_size - 1) // 2


def name(kernel: DepthwiseConfig) -> str:
    """Return the kernel's name."""
    k = kernel
    return (
        f"grouped_conv_fwd_depthwise_{k.dtype}_{LAYOUT}_{NDIM}d_{k.tile_h}x{k.tile_w}_f{k.filter_size}"
        f"_s{k.stride_h}x{k.stride_w}_p{k.pad}x{k.pad}_nb{k.batches}_sub{k.sub_h}x{k.sub_w}_vec{k.vec_in}_{k.vec_out}"
    )


_COUNT = r"([1-9]\d*)"
_END = "(?![^_])"
_PARTS = (
    Part("grouped_conv_fwd_depthwise_", "grouped_conv_fwd_depthwise_"),
    Part(f"a data type ({', '.join(DTYPES)})", rf"({'|'.join(DTYPES)})_"),
    Part(f"{LAYOUT}_{NDIM}d", f"{LAYOUT}_{NDIM}d"),
    Part("the tile (height x width, as _16x16)", rf"_{_COUNT}x{_COUNT}{_END}"),
    Part("the filter (as _f3)", rf"_f{_COUNT}{_END}"),
    Part("the stride (as _s2x2)", rf"_s{_COUNT}x{_COUNT}{_END}"),
    Part("the padding (as _p1x1)", rf"_p\d+x\d+{_END}"),
    Part("the batches (as _nb2)", rf"_nb{_COUNT}{_END}"),
    Part("the sub-tile (as _sub1x4)", rf"_sub{_COUNT}x{_COUNT}{_END}"),
    Part("the vectors (as _vec8_8)", rf"_vec{_COUNT}_{_COUNT}"),
)
_GRAMMAR = compiled(_PARTS)


def parse(text: str) -> DepthwiseConfig:
    """Return the kernel called ``text``; any text that ``name`` would not have written is a ``UserError``."""
    match = _GRAMMAR.fullmatch(text)
    if not match:
        raise UserError(f"kernel name {text!r}: {broken(text, _PARTS)}\n(the grammar is in docs/rule-sets.md)")
    dtype, tile_h, tile_w, size, stride_h, stride_w, batches, sub_h, sub_w, vec_in, vec_out = match.groups()
    sizes = (tile_h, tile_w, size, stride_h, stride_w, sub_h, sub_w, batches, vec_in, vec_out)
    kernel = DepthwiseConfig(dtype, *map(int, sizes))
    if name(kernel) != text:
        raise UserError(f"kernel name {text!r} is not canonical; the kernel is called {name(kernel)!r}")
    return kernel


def fault(kernel: DepthwiseConfig) -> str:
    """Return why the kernel cannot run, or an empty string.

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
