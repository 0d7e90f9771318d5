"""Training problems that fill the space which the networks of the train split span.

Layers are of one kind when filter, stride, dilation, padding, grouping and dimensionality agree. A kind's space is the
box, in logarithms, of batch, channels and filters a group, groups, image height, image shape and depth that holds its
layers: the odd ones, such as a network's first and last layer, can cost it more than all the others. Each kind gets
points that are spread evenly, as many as the square root of its number of layers commands: rare kinds are learnt too.
Channels are rounded to multiples of 8, or of 4, of 2 or of 1, which leave other, fewer kernels to choose from. Grouped
kinds get more points, half of them with as many outputs as inputs, as networks have them.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tileseer.core import exact
from tileseer.core.errors import UserError
from tileseer.problems.kinds import GROUPINGS, grouping
from tileseer.problems.layers import Layer
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, Problem, drawable_problem, ndim_of

LEAST_LAYERS = 3
"""Kinds of fewer layers are the oddities of one network: they span no space."""
MULTIPLES = ((0.20, 1), (0.40, 2), (0.55, 4), (1.0, 8))
"""What channels are multiples of: up to each share of the points."""
GROUPED_WEIGHT = 4.0
"""Grouped layers are few, but what is fast on them follows from two numbers of channels and that of groups."""
TRIES = 64
"""Points tried for each one requested, before a kind gives up: most fall out for their size."""
DESIGN_AXES = ("N", "C/G", "K/G", "G", "H", "W/H", "D")
POINT_BITS = 32
STEPS = np.array([math.isqrt(prime << 2 * POINT_BITS) for prime in (2, 3, 5, 7, 11, 13, 17, 19)], np.uint64)
"""Roots of primes, one for each axis and one for how channels are rounded: the fractions of their multiples fill a box
evenly (a Kronecker sequence), and whole numbers make the same ones everywhere."""


@dataclass(frozen=True)
class LayerKind:
    """What two layers have in common apart from batch, channels and image."""

    grouping: str
    """``dense``, ``grouped`` or ``depthwise``; depthwise may have several filters a channel."""
    flat: bool
    """Whether the image has a height of 1: a 1D convolution."""
    deep: bool
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def weight(self) -> float:
        """How many more points it gets than a dense kind of as many layers."""
        return GROUPED_WEIGHT if self.grouping == "grouped" else 1.0

    @property
    def name(self) -> str:
        """The kind in words, such as ``grouped 1x3x3 stride 1x2x2``."""
        axes = slice(0 if self.deep else 1, 3)
        words = [self.grouping, "x".join(map(str, self.filter[axes]))]
        for label, values, usual in (("stride", self.stride, 1), ("dilation", self.dilation, 1), ("pad", self.pad, -1)):
            if any(value != usual for value in values):
                words += [label, "x".join(map(str, values[axes]))]
        return " ".join([*words, *(["1D"] if self.flat else [])])


def kind_of(dims: Sequence[int]) -> LayerKind:
    """Return the kind of the convolution with these 19 dimensions."""
    d = dict(zip(DIMS, dims, strict=True))
    return LayerKind(
        GROUPINGS[grouping(d)],
        flat=d["Hi"] == 1 and d["Wi"] > 1,
        deep=ndim_of(d) == 3,
        filter=(d["Z"], d["Y"], d["X"]),
        stride=tuple(d[f"stride_{axis}"] for axis in "dhw"),
        pad=tuple(d[f"pad_{axis}"] for axis in "dhw"),
        dilation=tuple(d[f"dilation_{axis}"] for axis in "dhw"),
    )


def coordinates(dims: np.ndarray) -> np.ndarray:
    """Return log2 of the ``DESIGN_AXES`` of convolutions, float64 [n, 7]; ``dims`` is [n, 19] in ``DIMS``' order."""
    d = {name: dims[:, place].astype(np.float64) for place, name in enumerate(DIMS)}
    axes = (d["N"], d["C"] / d["G"], d["K"] / d["G"], d["G"], d["Hi"], d["Wi"] / d["Hi"], d["Di"])
    return exact.log2(np.stack(axes, axis=1))


def draw_design(
    layers: Iterable[Layer], operation: Operation, ndims: Sequence[int], size: int, seed: int
) -> list[Problem]:
    """Return ``size`` distinct problems, or fewer where a kind's space holds no more, by kind and point."""
    kinds: dict[LayerKind, list[tuple[int, ...]]] = defaultdict(list)
    for family in sorted({layer.layer_family for layer in layers}):
        kinds[kind_of((1, *family))].append((1, *family))
    spaces = {
        kind: np.array(dims)
        for kind, dims in kinds.items()
        if len(dims) >= LEAST_LAYERS and (3 if kind.deep else 2) in ndims
    }
    if size and not spaces:
        raise UserError(
            f"problems.design: no kind of convolution has {LEAST_LAYERS} layers in the train split of "
            "problems.networks, which a space of them needs; add layers, or set it to 0 and name problems.training"
        )
    batches = np.array(sorted({layer.dims[0] for layer in layers}))
    problems: dict[str, Problem] = {}
    counts = _shares({kind: kind.weight * math.sqrt(len(dims)) for kind, dims in spaces.items()}, size)
    for kind in sorted(spaces, key=lambda kind: kind.name):
        for problem in _fill(kind, spaces[kind], batches, counts[kind], operation, seed):
            problems.setdefault(problem.key, problem)
    return list(problems.values())


def _shares(weights: dict[LayerKind, float], size: int) -> dict[LayerKind, int]:
    """Deal ``size`` in proportion to ``weights``, the largest remainders last, at least 1 where there is enough."""
    total = sum(weights.values())
    exact = {kind: size * weight / total for kind, weight in weights.items()}
    dealt = {kind: int(share) for kind, share in exact.items()}
    order = sorted(exact, key=lambda kind: (dealt[kind] - exact[kind], kind.name))
    for kind in order[: size - sum(dealt.values())]:
        dealt[kind] += 1
    return dealt


def _fill(
    kind: LayerKind, dims: np.ndarray, batches: np.ndarray, count: int, operation: Operation, seed: int
) -> list[Problem]:
    """Return ``count`` distinct problems of one kind, or fewer."""
    if not count:
        return []
    points = coordinates(dims)
    points[:, 0] = 0.0
    low, high = points.min(axis=0), points.max(axis=0)
    low[0], high[0] = exact.log2(batches[[0, -1]])
    points = spread_points(f"{seed}:{kind.name}", count * TRIES)
    sizes = exact.exp2(low + points[:, :-1] * (high - low))
    problems: dict[str, Problem] = {}
    for number, (point, rounding) in enumerate(zip(sizes.tolist(), points[:, -1].tolist(), strict=True)):
        multiple = next(multiple for share, multiple in MULTIPLES if rounding <= share)
        values = dict(zip(DESIGN_AXES, point, strict=True))
        if kind.grouping == "grouped" and number % 2:
            # As most grouped layers, it has as many outputs as inputs, 1, 2, 4 or 8 if they are few.
            few = values["C/G"] < 1.5 * multiple
            values["K/G"] = values["C/G"] = _power_of_2(values["C/G"]) if few else values["C/G"]
        problem = _problem(kind, values, multiple, operation)
        if problem is not None:
            problems.setdefault(problem.key, problem)
        if len(problems) == count:
            break
    return list(problems.values())


def spread_points(name: str, count: int) -> np.ndarray:
    """Return points of the unit cube, float64 [count, axes]; ``name`` decides where they begin."""
    begin = np.frombuffer(hashlib.sha256(name.encode()).digest(), ">u4").astype(np.uint64)
    numbers = begin + np.arange(count, dtype=np.uint64)[:, None] * STEPS
    return (numbers % 2**POINT_BITS + 0.5) / 2**POINT_BITS


def _problem(kind: LayerKind, values: dict[str, float], multiple: int, operation: Operation) -> Problem | None:
    """Return the problem, or None where G does not divide, the filter does not fit, or the problem is too large."""
    groups = 1 if kind.grouping == "dense" else _channels(values["G"], multiple)
    per_group = 1 if kind.grouping == "depthwise" else _channels(values["C/G"], multiple)
    filters = _channels(values["K/G"], multiple) if kind.grouping != "depthwise" else max(1, round(values["K/G"]))
    height = 1 if kind.flat else max(1, round(values["H"]))
    full = {
        "N": max(1, round(values["N"])),
        "G": groups,
        "C": groups * per_group,
        "K": groups * filters,
        "Di": max(1, round(values["D"])) if kind.deep else 1,
        "Hi": height,
        "Wi": max(1, round(height * values["W/H"])),
    }
    full.update(zip(("Z", "Y", "X"), kind.filter, strict=True))
    for name, values_of_axes in (("stride", kind.stride), ("pad", kind.pad), ("dilation", kind.dilation)):
        full.update(zip((f"{name}_{axis}" for axis in "dhw"), values_of_axes, strict=True))
    problem = drawable_problem(operation, full)
    return problem if problem is not None and problem.ndim == (3 if kind.deep else 2) else None


def _channels(value: float, multiple: int) -> int:
    """Round channels to a multiple, those below 1.5 of them to the next number."""
    return max(1, round(value)) if value < 1.5 * multiple else multiple * round(value / multiple)


def _power_of_2(value: float) -> int:
    """Round to a power of 2."""
    return 1 << (max(1, round(value * 4 / 3)).bit_length() - 1)
