"""Tiny convolutions that reach the corners of a kernel: every tail of its loop, partial tiles, every kind of filter."""

from typing import Any

from tileseer.kernels.gemm_kernel import GemmKernel
from tileseer.problems.problem import Problem

REDUCTION_STEPS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Steps of the main loop along k, also of each slice of split-K: no loop at all, then each tail after a loop."""
DEEP = {3: (1, 3), 4: (2, 2), 5: (1, 5)}
"""Steps of the main loop with groups, stride, padding or dilation: rows and columns of the filter."""
SLICES = 2


def tiny_problems(kernel: GemmKernel) -> list[tuple[Problem, int]]:
    """Return the problems with their split-K, among them some that the kernel refuses."""
    vector, merged = max(kernel.vectors), getattr(kernel, "num_groups_to_merge", 1)
    few, more = max(2, merged), max(4, merged)
    common: dict[str, Any] = {"N": 1, "C": 64, "K": 64, "Hi": 6, "Wi": 6}
    filtered = {"Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    shapes = [
        *(_along_k(kernel, steps) for steps in REDUCTION_STEPS),
        common | filtered,
        common | {"Y": 3, "X": 3, "Hi": 9, "Wi": 7},
        common | filtered | {"stride_h": 2, "stride_w": 2, "Hi": 9, "Wi": 7},
        common | filtered | {"dilation_h": 2, "dilation_w": 2, "pad_h": 2, "pad_w": 2},
        common | {"Y": 2, "X": 3, "Hi": 11, "Wi": 11, "C": 3 * vector, "K": 9 * vector, "N": 2},
        common | {"C": vector, "K": vector},
        common | filtered | {"G": few, "C": few * vector, "K": 2 * few * vector, "N": 2},
        common | filtered | {"G": more, "C": more * vector, "K": more * vector},
        common | {"G": more, "C": 16 * more, "K": 16 * more},
    ]
    if getattr(kernel, "specialization", "") == "filter3x3":
        # They take one input channel a group.
        shapes.append(common | filtered | {"G": more, "C": more, "K": more * vector})
    if kernel.ndim == 3:
        deep = {"Di": 4, "Z": 3, "pad_d": 1}
        shapes[len(REDUCTION_STEPS) :] = [
            common | filtered | deep,
            common | filtered | deep | {"stride_d": 2, "stride_h": 2, "Di": 5},
            common | {"Di": 3, "Z": 2, "Y": 2, "dilation_d": 2},
            common | {"G": few, "C": 32 * few, "K": 32 * few, "Di": 3, "Z": 3, "pad_d": 1},
            common | {"Di": 2, "C": vector, "K": vector},
        ]
    shapes += [_deep(kernel, steps, few) for steps in DEEP]
    problems = [Problem.from_dims(kernel.variant, kernel.dtype, **shape) for shape in shapes]
    slices = (_along_k(kernel, SLICES * steps) for steps in REDUCTION_STEPS)
    split = [
        *(Problem.from_dims(kernel.variant, kernel.dtype, **shape) for shape in slices),
        problems[len(REDUCTION_STEPS)],
    ]
    return [(problem, 1) for problem in problems] + [(problem, SLICES) for problem in split]


def _along_k(kernel: GemmKernel, steps: int) -> dict[str, Any]:
    """Return a 1x1 convolution whose implicit GEMM is so many steps deep, of as many groups as the kernel merges."""
    depth, groups = steps * kernel.tile_k, getattr(kernel, "num_groups_to_merge", 1)
    if kernel.variant == "bwd_weight":
        pixels = {"Di": 2, "Hi": 4} if kernel.ndim == 3 else {"Hi": 8}
        return {"N": 1, "G": groups, "C": 64 * groups, "K": 64 * groups, "Wi": depth // 8, **pixels}
    first, other = ("C", "K") if kernel.variant == "forward" else ("K", "C")
    channels = {"G": groups, first: depth * groups, other: 64 * groups}
    return {"N": 1, "Hi": 5, "Wi": 5, **channels, **({"Di": 2} if kernel.ndim == 3 else {})}


def _deep(kernel: GemmKernel, steps: int, groups: int) -> dict[str, Any]:
    """Return a convolution with groups, and with stride, padding or dilation, whose GEMM is so many steps deep."""
    special = getattr(kernel, "specialization", "")
    rows, columns = (1, 1) if special.startswith("filter1x1") else DEEP[steps]
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
