"""The canonical convolution problem: its shape, its validity, its key.

A problem is what a kernel is chosen for. Splits are made by ``Problem.key``: two problems are the same
exactly when their keys are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Self

import numpy as np

from tileseer.core.errors import UserError, is_it, listed, shown
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.problems import shapes
from tileseer.problems.operation import Operation

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = "N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1"
"""A problem for examples of commands, as ``--problem`` takes it."""
INT32_MAX = 2**31 - 1
MAX_GFLOP, MAX_TENSOR_MIB = 1500.0, 1900.0
"""Of problems that are drawn; a tensor is counted at two bytes an element."""
LAYOUTS = ("NCHW", "NHWC")
"""Orders of the axes of all three tensors, by the number that features and selectors compare."""
BY_NAME = "give the dimensions by name: Problem.from_dims('forward', 'bf16', N=8, C=64)"
DEEP_LAYOUTS = {"NCHW": "NCDHW", "NHWC": "NDHWC"}
"""What the layouts are called of 3D tensors."""
NO_DEPTH = "a 3D problem without depth (Di and Z are 1) is none that a model knows"


@dataclass(frozen=True)
class Problem:
    """One grouped convolution in one direction; C and K are totals over the G groups.

    The input is N x C x [Di] x Hi x Wi, the filter K x C/G x [Z] x Y x X. Padding is symmetric per axis.
    A 2D problem has ``Di = Z = stride_d = dilation_d = 1`` and ``pad_d = 0``. Some libraries take tensors of several
    layouts: one of ``LAYOUTS``, empty for the first of those that the kernels of a library are for.
    """

    variant: str = ""
    dtype: str = ""
    ndim: int = 0
    N: int = 1
    C: int = 1
    K: int = 1
    G: int = 1
    Di: int = 1
    Hi: int = 1
    Wi: int = 1
    Z: int = 1
    Y: int = 1
    X: int = 1
    stride_d: int = 1
    stride_h: int = 1
    stride_w: int = 1
    pad_d: int = 0
    pad_h: int = 0
    pad_w: int = 0
    dilation_d: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    layout: str = ""

    def __post_init__(self) -> None:
        reason = self._fault()
        if reason:
            dims = " ".join(f"{name}={getattr(self, name)}" for name in DIMS)
            raise UserError(f"problem {dims}: {reason}")

    def _fault(self) -> str:
        """Return why this is no convolution, or an empty string."""
        for name, word, words in (("variant", self.variant, VARIANTS), ("dtype", self.dtype, DTYPES)):
            if word not in words:
                near = is_it(str(word).removeprefix("torch."), words)
                way = f"use one of {', '.join(words)}{near}" if near or (isinstance(word, str) and word) else BY_NAME
                return f"{name} is {word!r}; {way}"
        if self.layout not in ("", *LAYOUTS):
            return f"layout is {self.layout!r}; use one of {', '.join(LAYOUTS)}"
        if self.ndim not in (2, 3):
            return f"ndim is {self.ndim!r}; use 2 or 3, or {BY_NAME}"
        for name in DIMS:
            value = getattr(self, name)
            least = LEAST[name]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= INT32_MAX:
                return f"{name} is {value!r}; it must be an int from {least} to {INT32_MAX}"
        if self.ndim == 2 and (self.Di, self.Z, self.stride_d, self.dilation_d, self.pad_d) != (1, 1, 1, 1, 0):
            return "a 2D problem needs Di = Z = stride_d = dilation_d = 1 and pad_d = 0"
        for name in ("C", "K"):
            if getattr(self, name) % self.G:
                return f"{name} = {getattr(self, name)} is not a multiple of G = {self.G}"
        for axis, extent in zip("DHW", self.output, strict=True):
            if extent < 1:
                return f"the output extent along {axis} is {extent}: the dilated filter is larger than the padded input"
        for what, count in shapes.counted_in_32_bits(vars(self)).items():
            if count > INT32_MAX:
                return f"it is too large, since {what} is {count}, and kernels count that in 32 bits, up to {INT32_MAX}"
        return ""

    @property
    def dims(self) -> tuple[int, ...]:
        """The 19 dimensions in the order of ``DIMS``."""
        dims: tuple[int, ...] = _DIMS_OF(self)
        return dims

    @property
    def output(self) -> tuple[int, int, int]:
        """Output extents (Do, Ho, Wo)."""
        return shapes.output_extents(vars(self))

    @property
    def flop(self) -> int:
        """Useful FLOP in any direction."""
        return int(shapes.useful_flop(vars(self)))

    @property
    def largest_tensor(self) -> int:
        """Elements of the largest of input, filter and output."""
        return max(shapes.tensor_elements(vars(self)))

    @property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of direction, dtype, dimensionality, the 19 dimensions, and the layout NHWC."""
        layout = [self.layout] if self.layout == LAYOUTS[1] else []
        text = ",".join(map(str, (self.variant, self.dtype, self.ndim, *self.dims, *layout)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def layer_family(self) -> str:
        """Key of the same layer at any batch size and layout: neighbours of one family are no unseen problems."""
        text = ",".join(str(value) for value in (self.variant, self.dtype, self.ndim, *self.dims[1:]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def from_dims(cls, variant: str, dtype: str, *unnamed: int, **dims: int) -> Self:
        """Make a problem from any of the 19 dimensions; the others take the values of a 1x1 convolution.

        It is 3D when one of the depth fields says so. ``UserError`` for a dimension that is ``unnamed``.
        """
        if unnamed:
            raise UserError(f"problem: {shown(unnamed[0])} has no name; {BY_NAME}")
        unknown = sorted(set(dims) - set(DIMS))
        if unknown:
            layout = "; write .with_layout('NHWC') behind it" if unknown[0] == "layout" else ""
            advice = layout or meant(unknown[0], 0.6) or f"; the fields are {', '.join(DIMS)}"
            raise UserError(f"problem: unknown field {unknown[0]!r}{advice}")
        # An integer may be that of an array or a table.
        full = LEAST | {name: int(value) if isinstance(value, np.integer) else value for name, value in dims.items()}
        return cls(variant=variant, dtype=dtype, ndim=ndim_of(full), layout="", **full)

    def with_layout(self, layout: str) -> Self:
        """Return the same convolution in another layout; ``UserError`` for one of 3D tensors without depth."""
        if not isinstance(layout, str):
            raise UserError(f"layout is {layout!r}; use one of {', '.join(LAYOUTS)}")
        own = layout.replace("D", "")
        if own != layout and self.ndim == 2:
            raise UserError(f"layout {layout}: {NO_DEPTH}; for a 2D problem give {own}")
        return replace(self, layout=own) if own != self.layout else self


def ndim_of(dims: Mapping[str, int]) -> int:
    """Return the spatial dimensions of a convolution: 3 when one of its depth fields says so, else 2."""
    return 2 if (dims["Di"], dims["Z"], dims["stride_d"], dims["dilation_d"], dims["pad_d"]) == (1, 1, 1, 1, 0) else 3


def drawable_problem(operation: Operation, dims: Mapping[str, int]) -> Problem | None:
    """Return the problem, unless it is no convolution, or too large to be measured with many kernels."""
    try:
        problem = Problem.from_dims(operation.variant, operation.dtype, **dims)
    except UserError:
        return None
    too_large = problem.flop > MAX_GFLOP * 1e9 or 2 * problem.largest_tensor > MAX_TENSOR_MIB * 2**20
    return None if too_large else problem


FIELDS = tuple(field.name for field in fields(Problem) if field.name != "layout")
"""Columns of every table of problems. A table with several layouts has a column ``layout`` too."""
DIMS = FIELDS[3:]
"""The 19 dimensions in the order of the benchmark CSV."""
LEAST: dict[str, int] = {name: getattr(Problem, name) for name in DIMS}
"""The least value of each dimension, which is also what it means where it is not given: padding 0, all else 1."""
OTHER_NAMES = {"R": "Y", "S": "X", "H": "Hi", "W": "Wi", "D": "Di", "T": "Z", "HEIGHT": "Hi", "WIDTH": "Wi"}
OTHER_NAMES |= {"BATCH_SIZE": "N", "BATCH": "N", "IN_CHANNELS": "C", "OUT_CHANNELS": "K", "GROUPS": "G"}
"""What other libraries call dimensions, in capitals."""
_SEVERAL = {"kernel_size": ("Y", "X"), "padding": ("pad_h", "pad_w")}
"""What they call the dimensions of both axes."""
_DIMS_OF = attrgetter(*DIMS)


def meant(name: str, nearest: float, known: Sequence[str] = DIMS) -> str:
    """Return "; is it X?" with the one of the ``known`` dimensions that is meant; "" if none is as near (``is_it``)."""
    both = [each for each in _SEVERAL.get(name, (f"{name}_h", f"{name}_w")) if each in known]
    return f"; write {' and '.join(both)}" if both else is_it(OTHER_NAMES.get(name.upper(), name), known, nearest)


def problems_of_rows(
    variant: str, dtype: str, rows: Iterable[Sequence[int]], layouts: Iterable[str] | None = None
) -> list[Problem]:
    """Return the problems of one direction and data type from rows of the 19 dimensions, each with its layout."""
    pairs = zip(rows, repeat("") if layouts is None else layouts, strict=layouts is not None)
    return [
        Problem.from_dims(variant, dtype, **dict(zip(DIMS, map(int, row), strict=True))).with_layout(layout)
        for row, layout in pairs
    ]


def problem_frame(problems: list[Problem]) -> pd.DataFrame:
    """Return one row a problem, with ``problem_key`` and ``layer_family`` first."""
    # Imported here: pandas takes half a second, and most stages know problems without it.
    import pandas as pd

    problems = listed("problems", problems, Problem, f"a list of problems; for each {BY_NAME}")
    rows = [(p.key, p.layer_family, *p.__dict__.values()) for p in problems]
    table = pd.DataFrame(rows, columns=["problem_key", "layer_family", *FIELDS, "layout"])
    if not any(problem.layout for problem in problems):
        del table["layout"]
    return table.astype(dict.fromkeys(("ndim", *DIMS), "int64"))


def problems_of_frame(table: pd.DataFrame) -> list[Problem]:
    """Return the problems of ``table`` (columns ``FIELDS``), in its order."""
    with _table_of_problems(table):
        columns = [table[name].tolist() for name in (*FIELDS, *(["layout"] if "layout" in table else []))]
    return [Problem(*values) for values in zip(*columns, strict=True)]


@contextmanager
def _table_of_problems(table: object) -> Iterator[None]:
    """Say of what has not the columns of a table of problems how to make one."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        way = "give a table: tileseer.problems.problem.problem_frame([PROBLEM, ...])"
        raise UserError(f"problems is {shown(table)}, without the columns {', '.join(FIELDS)}; {way}") from error


def columns_of_frame(problems: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return what features and rules read of P problems, int64 [P] each: ``ndim``, the dimensions, and ``layout``.

    The layout is its place in ``LAYOUTS``, 0 also where the table has none.
    """
    names = ("ndim", *DIMS)
    # At once: of one problem, pandas takes longer for each column than all that follows.
    with _table_of_problems(problems):
        values = np.ascontiguousarray(problems[[*names]].to_numpy(np.int64).T)
    columns = dict(zip(names, values, strict=True))
    last = problems["layout"].to_numpy(object) == LAYOUTS[1] if "layout" in problems else np.zeros(len(problems))
    return columns | {"layout": last.astype(np.int64)}


_LEAST = np.array(list(LEAST.values()))


def wrong_rows(values: np.ndarray) -> np.ndarray:
    """Return the rows that ``Problem`` refuses, bool [n]; ``values`` are integers [n, 19] in the order of ``DIMS``."""
    wrong = np.any((values < _LEAST) | (values > INT32_MAX), axis=1)
    # Not of rows that are wrong already, which may have no stride. Of one problem, Python's integers are quicker.
    rows = np.flatnonzero(~wrong)
    columns = values[rows[0]].tolist() if len(rows) == 1 else values[rows].T.astype(np.int64)
    dims = dict(zip(DIMS, columns, strict=True))
    found = (dims["C"] % dims["G"] != 0) | (dims["K"] % dims["G"] != 0)
    for extent in shapes.output_extents(dims):
        found = found | (extent < 1)
    # Products of floats do not overflow.
    wide = dims if len(rows) == 1 else {name: column.astype(np.float64) for name, column in dims.items()}
    for count in shapes.counted_in_32_bits(wide).values():
        found = found | (count > INT32_MAX)
    wrong[rows] = found
    return wrong
