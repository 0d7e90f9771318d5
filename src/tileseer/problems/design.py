"""Training problems that fill the space which the networks of the train split span.

Layers are of one kind when filter, stride, dilation, padding, grouping and dimensionality agree. A kind's space is the
box, in logarithms, of batch, channels and filters a group, groups, image height, image shape and depth between the
5th and the 95th percentile of its layers. Each kind gets points of a scrambled Sobol sequence, as many as the square
root of its number of layers commands: rare kinds are learnt too. Channels are rounded to multiples of 8 for most
points, and to multiples of 4, of 2 or of 1 for the others: such channels leave other kernels to choose from, and one
layer of them can cost a network more than all its others.
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

EDGE_PERCENTILES = (5, 95)
LEAST_LAYERS = 3
"""Kinds of fewer layers are the oddities of one network: they span no space."""
MULTIPLES = ((0.15, 1), (0.30, 2), (0.45, 4), (1.0, 8))
"""What channels are multiples of: up to each share of the points."""
TRIES = 64
"""Sobol points tried for each one requested, before a kind gives up: most fall out for their size."""
DESIGN_AXES = ("N", "C/G", "K/G", "G", "H", "W/H", "D")


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
    kinds: dict[LayerKind, set[tuple[int, ...]]] = defaultdict(set)
    for layer in layers:
        kinds[kind_of(layer.dims)].add(layer.layer_family)
    spaces = {
        kind: np.array([(1, *family) for family in sorted(families)])
        for kind, families in kinds.items()
        if len(families) >= LEAST_LAYERS and (3 if kind.deep else 2) in ndims
    }
    if size and not spaces:
        raise UserError("problems.design: no kind of convolution has enough layers in the train split to span a space")
    batches = np.array(sorted({layer.dims[0] for layer in layers}))
    problems: dict[str, Problem] = {}
    counts = _shares({kind: math.sqrt(len(dims)) for kind, dims in spaces.items()}, size)
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
    low, high = np.percentile(points, EDGE_PERCENTILES, axis=0)
    low[0], high[0] = exact.log2(batches[[0, -1]])
    stream = int(hashlib.sha256(f"{seed}:{kind.name}".encode()).hexdigest()[:8], 16)
    # One more axis says how a point's channels are rounded.
    from scipy.stats import qmc  # Not above: it takes a second, and what draws no design needs none.

    sobol = qmc.Sobol(len(DESIGN_AXES) + 1, scramble=True, rng=np.random.default_rng(stream))
    problems: dict[str, Problem] = {}
    for point in sobol.random(1 << (count * TRIES - 1).bit_length()):
        values = dict(zip(DESIGN_AXES, exact.exp2(low + point[:-1] * (high - low)), strict=True))
        multiple = next(multiple for share, multiple in MULTIPLES if point[-1] <= share)
        problem = _problem(kind, values, multiple, operation)
        if problem is not None:
            problems.setdefault(problem.key, problem)
        if len(problems) == count:
            break
    return list(problems.values())


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
