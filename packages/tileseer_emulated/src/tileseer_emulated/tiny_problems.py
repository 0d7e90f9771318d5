"""Small convolutions that reach the corners of a kernel: each instance with grids of many tiles, and with one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tileseer.libraries.gemm_kernel import GemmKernel
from tileseer.problems.problem import Problem

REDUCTION_STEPS = tuple(range(1, 17))
"""Steps of the main loop along k, also of each slice of split-K: no loop at all, then each tail after a loop, of which
a pipeline has up to eight."""
EVERY_STEP = 8
"""Numbers of steps up to this one are executed even if they launch no other instance than those before."""
TALL, WIDE = (6, 3), (3, 4)
"""Rows and columns of tiles. Kernels map workgroups to tiles in groups of four rows, and in eight parts of a grid that
differ in length: the two grids have whole and partial groups, and longer and shorter parts."""
SLICES = 2
EVERYTHING = ("everything", "everything, other axes")
"""Stride, dilation, padding, groups and images at once: what of an address is wrong shows in one of the two."""
GRIDS = ("many rows of tiles", "many columns of tiles")
"""What ``few`` executes of each instance; what launches it only otherwise comes on top (``Emulation.few``)."""


class TinyProblem(NamedTuple):
    """A problem, and why it is executed."""

    problem: Problem
    split_k: int
    shows: str
    """It is executed if it launches an instance that no other problem with these words has launched; without words, if
    no other problem has launched it at all."""


def tiny_problems(kernel: GemmKernel) -> list[TinyProblem]:
    """Return problems in the order in which they are to be executed, among them some that the kernel refuses."""
    return [
        TinyProblem(Problem.from_dims(kernel.variant, kernel.dtype, **dims), split_k, shows)
        for split_k in (1, SLICES)
        for shows, dims in _shapes(kernel, split_k)
    ]


def _shapes(kernel: GemmKernel, split_k: int) -> Iterator[tuple[str, dict[str, Any]]]:
    slices = f", {split_k} slices" if split_k > 1 else ""
    merged = getattr(kernel, "num_groups_to_merge", 1)
    for steps in REDUCTION_STEPS:
        yield (f"{steps} steps{slices}" if steps <= EVERY_STEP else ""), _gemm(kernel, steps * split_k, G=merged)
    # Where a kernel refuses a remainder along k, there is the same without.
    for remainder in (True, False):
        for steps in REDUCTION_STEPS:
            for name, tiles, taps in zip(GRIDS, (TALL, WIDE), ((1, 1), _filter(kernel)), strict=True):
                yield name, _gemm(kernel, steps * split_k, *tiles, remainder, N=2, G=merged, filter=taps)
            yield "a row of tiles", _gemm(kernel, steps * split_k, 1, 2, remainder, G=merged)
            yield "a column of tiles, groups", _gemm(kernel, steps * split_k, 3, 1, remainder, G=2 * merged)
    for steps in REDUCTION_STEPS:
        for number, name in enumerate(EVERYTHING):
            yield name, _everything(kernel, steps * split_k, number)
    vector, few, more = max(kernel.vectors), max(2, merged), max(4, merged)
    common = {"Hi": 6, "Wi": 6} | ({"Di": 2} if kernel.ndim == 3 else {})
    filtered = {"Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    if split_k > 1:
        yield "padding, slices", common | filtered | {"C": 64, "K": 64}
        return
    yield "smallest", common | {"C": vector, "K": vector}
    yield "stride", common | filtered | {"C": 64, "K": 64, "stride_h": 2, "stride_w": 2, "Hi": 9, "Wi": 7}
    yield "dilation", common | filtered | {"C": 64, "K": 64, "dilation_h": 2, "dilation_w": 2, "pad_h": 2, "pad_w": 2}
    yield "groups", common | filtered | {"G": few, "C": few * vector, "K": 2 * few * vector, "N": 2}
    yield "many groups", common | {"G": more, "C": 16 * more, "K": 16 * more}
    if getattr(kernel, "specialization", "") == "filter3x3":
        # They take one input channel a group.
        yield "one channel", common | filtered | {"G": more, "C": more, "K": more * vector}
        for name, tiles in zip(GRIDS, (TALL, WIDE), strict=True):
            yield name, _gemm(kernel, 1, *tiles, G=merged) | filtered | {"C": merged}
    if kernel.variant == "bwd_data":
        # A strided gradient is several GEMMs. The instance is that for all of the filter's four taps.
        for steps in REDUCTION_STEPS:
            strided = common | {"Hi": 9, "Wi": 7, "Y": 2, "X": 2, "stride_h": 2, "stride_w": 2}
            channels = max(vector, steps * kernel.tile_k // 4 // vector * vector)
            yield "several GEMMs", strided | {"G": merged, "C": 64 * merged, "K": channels * merged}
    if kernel.ndim == 3:
        deep = {"Di": 4, "Z": 3, "pad_d": 1}
        yield "depth", common | filtered | deep | {"C": 64, "K": 64}
        yield "depth, stride", common | filtered | deep | {"C": 64, "K": 64, "stride_d": 2, "stride_h": 2, "Di": 5}
        yield "depth, dilation", common | {"C": 64, "K": 64, "Di": 3, "Z": 2, "Y": 2, "dilation_d": 2}
    for columns in DEEP_FILTERS:
        yield f"deep, {columns}", _deep(kernel, columns, few)


def _gemm(
    kernel: GemmKernel, steps: int, rows: int = 1, columns: int = 1, remainder: bool = False, *, G: int, N: int = 1,
    filter: tuple[int, int] = (1, 1),
) -> dict[str, Any]:  # fmt: skip
    """Return a convolution whose implicit GEMM has so many tiles and steps along k.

    Grids of several tiles have a part of a tile at both edges, and with ``remainder`` a part of a step at the end.
    Merged groups are one GEMM together, except in gradients of the data.
    """
    vector, (Y, X) = max(kernel.vectors), filter
    m, n = (_extent(tile, count, vector) for tile, count in ((kernel.tile_m, rows), (kernel.tile_n, columns)))
    if rows * columns == 1:
        m, n = 64 if kernel.variant == "bwd_weight" else 25, 64
    merged = 1 if kernel.variant == "bwd_data" else getattr(kernel, "num_groups_to_merge", 1)
    if merged > 1:
        whole = vector if kernel.variant == "bwd_weight" else 1
        m, n = -(-m // (merged * whole)) * whole, -(-n // (merged * vector)) * vector
    k = steps * kernel.tile_k
    if remainder:
        k -= max(vector, kernel.tile_k // 2 // vector * vector) % kernel.tile_k
    images = {"N": 1, "Di": 2} if kernel.ndim == 3 else {"N": N}
    count = math.prod(images.values())
    pads = {"pad_w": X // 2}
    if kernel.variant == "bwd_weight":
        channels = {"K": m, "C": -(-n // (Y * X * vector)) * vector if Y * X > 1 else n}
        width, pixels = 8 // count, k
    else:
        first, other = ("C", "K") if kernel.variant == "forward" else ("K", "C")
        channels = {first: steps * kernel.tile_k // (Y * X * vector) * vector if Y * X > 1 else k, other: n}
        width, pixels = 3 if rows * columns > 1 else 5, m
    height = -(-pixels // (width * count))
    if kernel.variant != "bwd_data":
        # These are the sizes of the output.
        height, width = height + Y - 1, width + X - 1 - 2 * pads["pad_w"]
    dims = images | pads | {"G": G, "Y": Y, "X": X, "Hi": height, "Wi": width}
    return dims | {name: size * G for name, size in channels.items()}


@dataclass(frozen=True)
class _Axes:
    """What a convolution does along depth, rows and columns; nothing is the same along two of them."""

    taps: tuple[int, int, int]
    strides: tuple[int, int, int]
    dilations: tuple[int, int, int]
    pads: tuple[int, int, int]


_MANY_TAPS = {
    2: (_Axes((1, 3, 2), (1, 2, 3), (1, 3, 2), (0, 3, 1)), _Axes((1, 2, 3), (1, 3, 2), (1, 2, 3), (0, 1, 4))),
    3: (_Axes((2, 1, 3), (3, 1, 2), (1, 2, 3), (1, 0, 4)), _Axes((3, 2, 1), (1, 2, 3), (2, 3, 1), (3, 1, 2))),
}
"""By the number of axes: two convolutions with stride, dilation and padding at once."""
_SPECIAL_TAPS = {
    "filter1x1_pad0": _Axes((1, 1, 1), (1, 2, 3), (1, 1, 1), (0, 0, 0)),
    "filter1x1_stride1_pad0": _Axes((1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0)),
    "filter3x3": _Axes((1, 3, 3), (1, 2, 1), (1, 1, 2), (0, 1, 2)),
}


def _everything(kernel: GemmKernel, steps: int, number: int) -> dict[str, Any]:
    """Return one of two convolutions with all that a convolution can have at once, so many steps of the GEMM deep.

    The input ends beyond the last filter, so that the padding behind it is less than that before it. Extents divide
    neither tiles nor steps; one has two rows of tiles and the other one two columns.
    """
    axes = _SPECIAL_TAPS.get(getattr(kernel, "specialization", ""), _MANY_TAPS[kernel.ndim][number])
    vector, merged, taps = max(kernel.vectors), getattr(kernel, "num_groups_to_merge", 1), math.prod(axes.taps)
    share = 1 if kernel.variant == "bwd_data" else merged
    m, n = (
        -(-_extent(tile, count, vector) // (share * vector)) * vector
        for tile, count in ((kernel.tile_m, 2 - number), (kernel.tile_n, 1 + number))
    )
    k, width, depth = steps * kernel.tile_k, 5 + 2 * number, kernel.ndim - 1
    if kernel.variant == "bwd_weight":
        channels, pixels = {"K": m, "C": -(-n // (taps * vector)) * vector}, k
    else:
        first, other = ("C", "K") if kernel.variant == "forward" else ("K", "C")
        # Gradients of strided data are several GEMMs, each with a part of the taps.
        parts = [-(-tap // stride) if kernel.variant == "bwd_data" else tap
                 for tap, stride in zip(axes.taps, axes.strides, strict=True)]  # fmt: skip
        channels = {first: max(1, k // (math.prod(parts) * vector)) * vector, other: n}
        pixels = m
    outputs = depth, -(-pixels // (3 * depth * width)), width
    dims = {"N": 3, "G": 2 * merged} | {name: size * 2 * merged for name, size in channels.items()}
    if getattr(kernel, "specialization", "") == "filter3x3":
        dims["C"] = dims["G"]
    for place, (axis, image, tap) in enumerate((("d", "Di", "Z"), ("h", "Hi", "Y"), ("w", "Wi", "X"))):
        if axis == "d" and kernel.ndim == 2:
            continue
        stride, dilation, pad = axes.strides[place], axes.dilations[place], axes.pads[place]
        size = outputs[place] if kernel.variant == "bwd_data" else outputs[place] * stride
        dims |= {
            tap: axes.taps[place], f"stride_{axis}": stride, f"dilation_{axis}": dilation, f"pad_{axis}": pad,
            image: max(size + dilation * (axes.taps[place] - 1) - 2 * pad, 1 + dilation * (axes.taps[place] - 1)),
        }  # fmt: skip
    return dims


def _filter(kernel: GemmKernel) -> tuple[int, int]:
    """Return rows and columns of a filter with which the channels are at most a step along k too few."""
    if getattr(kernel, "specialization", "").startswith("filter1x1"):
        return 1, 1
    choices = (one for one in ((2, 3), (1, 3), (1, 2)) if math.prod(one) * max(kernel.vectors) < kernel.tile_k)
    return next(choices, (1, 1))


def _extent(tile: int, count: int, vector: int) -> int:
    """Return the size of so many tiles, of which the last is about a third full."""
    part = max(vector, tile // 3 // vector * vector)
    return tile * (count - 1) + min(part, tile)


DEEP_FILTERS = {3: (1, 3), 4: (2, 2), 5: (1, 5)}
"""Steps of the main loop with groups, stride, padding or dilation: rows and columns of the filter."""


def _deep(kernel: GemmKernel, steps: int, groups: int) -> dict[str, Any]:
    """Return a convolution with groups, and with stride, padding or dilation, whose GEMM is so many steps deep."""
    special = getattr(kernel, "specialization", "")
    rows, columns = (1, 1) if special.startswith("filter1x1") else DEEP_FILTERS[steps]
    changes = {"Y": rows, "X": columns, "pad_w": columns // 2}
    if rows == 2:
        changes |= {"pad_h": 1, "dilation_h": 2, "dilation_w": 2}
    elif special != "filter1x1_stride1_pad0":
        changes["stride_h"] = 2
    images = 2 if kernel.ndim == 3 else 1
    channels = {"C": 32 * groups, "K": 32 * groups}
    height = 6
    if kernel.variant == "bwd_weight":
        height = steps * kernel.tile_k // (8 * images) * changes.get("stride_h", 1)
    else:
        channels["C" if kernel.variant == "forward" else "K"] = groups * steps * kernel.tile_k // (rows * columns)
    return {"N": 1, "G": groups, "Hi": height, "Wi": 8, **({"Di": 2} if images == 2 else {}), **channels, **changes}
