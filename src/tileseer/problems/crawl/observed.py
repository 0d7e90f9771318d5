"""One convolution as a network ran it, and how it becomes a row of the table of layers, or why not."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.problems.layers import Layer
from tileseer.problems.problem import DIMS, Problem

LAYOUT_OF_AXES = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
MAX_TENSOR_BYTES = 2**31
BF16_BYTES = 2


@dataclass(frozen=True)
class Observed:
    """A convolution or a transposed one; all extents are of its 1 to 3 spatial axes.

    ``image`` is what it reads and ``channels`` what it has of them, ``filters`` what it writes: N x channels x image
    becomes N x filters x output.
    """

    layer: str
    batch: int
    groups: int
    channels: int
    filters: int
    image: tuple[int, ...]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    output_pad: tuple[int, ...] = ()
    """What a transposed convolution adds at the end of each axis."""
    transposed: bool = False
    trained: bool = False
    """Whether the run has a backward pass."""
    input_grad: bool = False
    """Whether that pass needs the gradient of the input: not so for the first layer of a network."""

    @property
    def directions(self) -> tuple[str, ...]:
        """The problems that the run solves: a transposed convolution is its partner's backward data."""
        first, other = ("bwd_data", "forward") if self.transposed else ("forward", "bwd_data")
        directions = {first, *(("bwd_weight",) if self.trained else ()), *((other,) if self.input_grad else ())}
        return tuple(variant for variant in VARIANTS if variant in directions)

    def dims(self) -> tuple[int, ...]:
        """Return the 19 dimensions; a transposed convolution gives those of the convolution that it reverses.

        The output extents of a transposed convolution are (i - 1) s - 2 p + d (f - 1) + output_pad + 1.
        """
        image = self.image
        channels, filters = self.channels, self.filters
        if self.transposed:
            channels, filters = filters, channels
            axes = zip(image, self.filter, self.stride, self.pad, self.dilation, self.output_pad, strict=True)
            image = tuple((i - 1) * s - 2 * p + d * (f - 1) + o + 1 for i, f, s, p, d, o in axes)
        # A filter extent of 1 reads the same pixels whatever its dilation: one problem, one key.
        dilation = tuple(d if f > 1 else 1 for d, f in zip(self.dilation, self.filter, strict=True))
        lists = ((image, 1), (self.filter, 1), (self.stride, 1), (self.pad, 0), (dilation, 1))
        full = ((absent,) * (3 - len(extents)) + extents for extents, absent in lists)
        return (self.batch, channels, filters, self.groups, *chain.from_iterable(full))

    def fault(self) -> str:
        """Say why this cannot stand in the table; the text is empty if it can."""
        try:
            problem = Problem.from_dims("forward", "bf16", **dict(zip(DIMS, self.dims(), strict=True)))
        except UserError as error:
            return str(error).rpartition(": ")[2]
        if self.transposed and any(o >= s for o, s in zip(self.output_pad, self.stride, strict=True)):
            return "the output padding of a transposed convolution reaches its stride"
        axes = zip(self.filter, self.pad, self.dilation, strict=True)
        if any(p > d * (f - 1) for f, p, d in axes):
            return "a pad exceeds the reach of the filter, so some outputs see padding only"
        if problem.largest_tensor * BF16_BYTES >= MAX_TENSOR_BYTES:
            return "a tensor has 2 GiB or more in bf16"
        return ""


def tabulate_layers(network: str, run: str, observed: Iterable[Observed]) -> tuple[list[Layer], Counter[str]]:
    """Return the distinct layers of a run in order of execution, and how many were left out for which reason."""
    occurrences: Counter[tuple[tuple[int, ...], tuple[str, ...], str]] = Counter()
    first: dict[object, str] = {}
    left_out: Counter[str] = Counter()
    for conv in observed:
        if fault := conv.fault():
            left_out[fault] += 1
            continue
        kind = conv.dims(), conv.directions, LAYOUT_OF_AXES[len(conv.image)]
        occurrences[kind] += 1
        first.setdefault(kind, conv.layer)
    layers = [
        Layer(network, run, first[dims, directions, layout], dims, count, directions, layout)
        for (dims, directions, layout), count in occurrences.items()
    ]
    return layers, left_out
