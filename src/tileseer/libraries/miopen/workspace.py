"""Bytes of workspace that MIOpen's solvers need, as its databases have them.

Formulas follow MIOpen's sources at 2d1fd997a6fc. On the recording of the MI300X all but one of 30,779 workspaces are
equal, on those of the MI100, MI210 and MI250 no formula is below the recorded number, and 99.6 % are equal: their rows
come from several releases. A solver without a formula has no workspace here.
"""

from collections.abc import Callable
from functools import partial
from math import prod

from tileseer.facts.operations import ELEMENT_BYTES
from tileseer.libraries.miopen.solvers import Release, facts_of
from tileseer.problems.problem import LAYOUTS, Problem
from tileseer.problems.shapes import tensor_elements

ALIGNMENT = 256
"""Bytes of which the parts of a workspace are multiples."""
LARGEST_GEMM = 7_287_183_769
"""Bytes from which the GEMM solvers do not run."""
FLOAT = 4

CHECKED = (3, 0), (3, 3)
"""First and last release on whose databases, or sources, the formulas were checked."""


def holds(release: Release) -> bool:
    """Return whether the formulas were checked for a release of MIOpen."""
    first, last = CHECKED
    return first <= release[:2] <= last


def workspace(solver: str, problem: Problem) -> int | None:
    """Return the bytes that a solver needs for a problem; None if there is no formula, or it cannot run."""
    formula = FORMULAS.get(facts_of(solver).workspace)
    return formula and formula(problem)


def _tensors(problem: Problem) -> tuple[int, int, int]:
    """Return the elements of input, filter and output."""
    return tensor_elements(vars(problem))


def _size(problem: Problem) -> int:
    return ELEMENT_BYTES[problem.dtype]


def _strided(problem: Problem) -> bool:
    return problem.stride_h > 1 or problem.stride_w > 1


def _aligned(*parts: int) -> int:
    return sum(-(-part // ALIGNMENT) * ALIGNMENT for part in parts)


def _columns(problem: Problem) -> int | None:
    """Return the bytes of the matrix of filter positions by output pixels, of one image."""
    taps = problem.Z * problem.Y * problem.X
    size = problem.C * taps * prod(problem.output) * _size(problem)
    return size if size <= LARGEST_GEMM else None


def _subsampled(problem: Problem) -> int:
    """Return the bytes of the input pixels that a strided 1x1 filter reads."""
    return problem.N * problem.C * prod(problem.output) * _size(problem)


def _subsampled_and_output(problem: Problem) -> int | None:
    size = _subsampled(problem) + _tensors(problem)[2] * _size(problem)
    return size if size <= LARGEST_GEMM else None


def _transposed_and_cast(problem: Problem) -> int:
    """Return the bytes of tensors that are not NHWC in that layout, and of the result in fp32.

    A tensor of one channel, or of one pixel, is in both layouts at once.
    """
    sizes, parts = _tensors(problem), [0, 0, 0]
    if problem.layout != LAYOUTS[1]:
        pixels = problem.Di * problem.Hi * problem.Wi, problem.Z * problem.Y * problem.X, prod(problem.output)
        channels = problem.C, problem.C // problem.G, problem.K
        parts = [
            0 if 1 in (channel, pixel) else size * _size(problem)
            for size, channel, pixel in zip(sizes, channels, pixels, strict=True)
        ]
    result = {"forward": sizes[2], "bwd_data": sizes[0], "bwd_weight": sizes[1]}[problem.variant]
    return _aligned(*parts, 0 if problem.dtype == "fp32" else FLOAT * result)


def _transposed(problem: Problem) -> int:
    if problem.layout == LAYOUTS[1]:
        return 0
    return _aligned(*(size * _size(problem) for size in _tensors(problem)))


def _filter_in_fp32(problem: Problem) -> int:
    return 0 if problem.dtype == "fp32" else FLOAT * _tensors(problem)[1]


def _filters(problem: Problem, images: int) -> int:
    """Return the bytes of a filter for each part of the batch, of so many images."""
    parts = -(-problem.N // images)
    return parts * _tensors(problem)[1] * _size(problem) if parts > 1 else 0


def _filters_by_size(problem: Problem) -> int:
    images = 1 if problem.C * problem.K <= 8192 else problem.N if problem.N <= 16 or problem.output[2] <= 32 else 4
    return _filters(problem, images)


def _in_one_pass(problem: Problem) -> int | None:
    """Return 0; None where the number of passes decides."""
    one = problem.C % 16 or problem.K % 16 or problem.pad_h or problem.pad_w or not _strided(problem)
    return 0 if one else None


FORMULAS: dict[str, Callable[[Problem], int | None]] = {
    "none": lambda problem: 0,
    "none in fp32": lambda problem: 0 if problem.dtype == "fp32" else None,
    "none in one pass": _in_one_pass,
    "columns": _columns,
    "subsampled if strided": lambda problem: _subsampled(problem) if _strided(problem) else 0,
    "subsampled and output": _subsampled_and_output,
    "transposed": _transposed,
    "transposed and cast": _transposed_and_cast,
    "filter in fp32": _filter_in_fp32,
    "filter of all groups in fp32": lambda problem: _filter_in_fp32(problem) * problem.G,
    "filters by size": _filters_by_size,
    **{f"filters {images}": partial(_filters, images=images) for images in (1, 2, 4, 8, 16)},
}
"""By the words of ``solvers.csv``."""
