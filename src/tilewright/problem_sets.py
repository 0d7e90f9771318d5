"""Sets of problems: training problems from generator files, validation problems from a table of real layers.

A generator file lists sections. A section crosses ``choices``: each key is a dimension or several joined by
commas (chosen together), each value the list to choose from. Derived names say what a product of lists cannot:

* ``C/G`` and ``K/G``: channels a group; C and K follow. ``C`` and ``K`` may be given instead.
* ``pad: same`` pads every axis by dilation * (filter - 1) / 2, rounded down.
* ``depthwise: true`` sets G = C = K.

``count`` draws that many problems of the product, without repetition, from a generator seeded by the section's
name: changing one section leaves the others as they are.
"""

from __future__ import annotations

import csv
import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from tilewright.errors import UserError
from tilewright.operation import Operation
from tilewright.problem import DIMS, INT32_MAX, Problem
from tilewright.tables import Table, read

_AXES = (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w"))
_DERIVED = ("C/G", "K/G")
_TABLE_COLUMNS = ("network", "layer", *DIMS)


class GeneratorSection(Table):
    """A family of problems."""

    name: str = Field(min_length=1)
    choices: dict[str, list[Any]]
    """Dimension, or dimensions joined by commas, to the values to choose from."""
    pad: str = Field("given", pattern="^(given|same)$")
    """``same``, or ``given`` (the pad fields of the choices, 0 where there are none)."""
    depthwise: bool = False
    """Set G = C = K."""
    count: int | None = Field(None, ge=1)
    """How many problems to draw; all of the product if not set."""


class Limits(Table):
    """Problems beyond these are left out of the product before drawing."""

    max_gflop: float = Field(2000.0, gt=0, strict=False)
    max_tensor_mib: float = Field(1900.0, gt=0, strict=False)
    """Largest single tensor, counted at two bytes an element."""


class Generator(Table):
    """A generator file."""

    limits: Limits = Limits()
    sections: list[GeneratorSection] = Field(min_length=1)


@dataclass(frozen=True)
class Entry:
    """A problem with where it comes from: a generator section, or a network and its layer."""

    problem: Problem
    origin: str
    layer: str


def generate(path: Path, operation: Operation, ndims: tuple[int, ...], seed: int) -> list[Entry]:
    """Return the problems of a generator file for one operation, in file order, without repetition."""
    generator = read(path, Generator)
    entries: dict[str, Entry] = {}
    for section in generator.sections:
        for problem in _draw(section, generator.limits, operation, seed, path):
            if problem.ndim in ndims:
                entries.setdefault(problem.key, Entry(problem, section.name, ""))
    return list(entries.values())


def _draw(section: GeneratorSection, limits: Limits, operation: Operation, seed: int, path: Path) -> Iterator[Problem]:
    where = f"{path}: section {section.name!r}"
    axes = [_axis(key, values, where) for key, values in section.choices.items()]
    size = math.prod(len(axis) for axis in axes)
    numbers: Iterator[int] = iter(range(size))
    if section.count is not None:
        if size > 10**7:
            raise UserError(f"{where}: the choices make {size} combinations; more than 10,000,000 cannot be drawn from")
        # Python's own generator: its sequence for a given seed is the same on every version and machine.
        stream = random.Random(hashlib.sha256(f"{seed}:{section.name}".encode()).hexdigest())
        numbers = iter(stream.sample(range(size), size))
    wanted = size if section.count is None else section.count
    for number in numbers:
        if wanted == 0:
            return
        dims: dict[str, int] = {}
        for axis in axes:
            number, index = divmod(number, len(axis))
            dims.update(axis[index])
        problem = _problem(dims, section, operation, where)
        if problem is not None and _within(problem, limits):
            wanted -= 1
            yield problem
    if section.count is not None and wanted:
        raise UserError(f"{where}: count is {section.count}, but only {section.count - wanted} combinations are valid")


def _axis(key: str, values: list[Any], where: str) -> list[dict[str, int]]:
    """Return what each choice of one key sets."""
    names = [name.strip() for name in key.split(",")]
    for name in names:
        if name not in (*DIMS, *_DERIVED):
            raise UserError(f"{where}: unknown dimension {name!r}; use {', '.join((*DIMS, *_DERIVED))}")
    axis = []
    for value in values:
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) != len(names) or not all(type(n) is int and 0 <= n <= INT32_MAX for n in numbers):
            raise UserError(f"{where}: {key}: {value!r} must be {len(names)} whole number(s) from 0 to {INT32_MAX}")
        axis.append(dict(zip(names, numbers, strict=True)))
    if not axis:
        raise UserError(f"{where}: {key}: the list of values is empty")
    return axis


def _problem(dims: dict[str, int], section: GeneratorSection, operation: Operation, where: str) -> Problem | None:
    """Return the problem, or None where the filter does not fit into the image or G does not divide."""
    full = {name: dims.get(name, 0 if name.startswith("pad") else 1) for name in DIMS}
    if section.depthwise:
        full["G"] = full["K"] = full["C"]
    for name in _DERIVED:
        if name in dims:
            full[name[0]] = dims[name] * full["G"]
    if section.pad == "same":
        for _, extent, axis in _AXES:
            full[f"pad_{axis}"] = full[f"dilation_{axis}"] * (full[extent] - 1) // 2
    if full["G"] < 1 or full["C"] % full["G"] or full["K"] % full["G"]:
        return None
    if any(
        full[image] + 2 * full[f"pad_{axis}"] < full[f"dilation_{axis}"] * (full[extent] - 1) + 1
        for image, extent, axis in _AXES
    ):
        return None
    try:
        return Problem.from_dims(operation.variant, operation.dtype, **full)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _within(problem: Problem, limits: Limits) -> bool:
    p = problem
    outputs = math.prod(p.output)
    gflop = 2e-9 * p.N * p.K * outputs * (p.C // p.G) * p.Z * p.Y * p.X
    largest = max(p.N * p.C * p.Di * p.Hi * p.Wi, p.N * p.K * outputs)
    return gflop <= limits.max_gflop and 2 * largest <= limits.max_tensor_mib * 2**20


def read_networks(path: Path, operation: Operation, ndims: tuple[int, ...]) -> list[Entry]:
    """Return the problems of a table with the columns network, layer and the 19 dimensions.

    A row that is no valid convolution is a ``UserError`` with its line number.
    """
    with path.open(newline="") as stream:
        rows = csv.reader(stream, strict=True)
        header = next(rows, [])
        if sorted(header) != sorted(_TABLE_COLUMNS):
            raise UserError(f"{path}: line 1: the columns must be {','.join(_TABLE_COLUMNS)}, in any order")
        entries: dict[str, Entry] = {}
        for row in rows:
            entry = _network_entry(header, row, operation, f"{path}: line {rows.line_num}")
            if entry.problem.ndim in ndims:
                entries.setdefault(entry.problem.key, entry)
    return list(entries.values())


def _network_entry(header: list[str], row: list[str], operation: Operation, where: str) -> Entry:
    if len(row) != len(header):
        raise UserError(f"{where}: {len(row)} fields, but {len(header)} are needed")
    fields = dict(zip(header, row, strict=True))
    if not fields["network"] or not fields["layer"]:
        raise UserError(f"{where}: network and layer must be named")
    dims = {}
    for name in DIMS:
        if not (fields[name].isascii() and fields[name].isdigit()):
            raise UserError(f"{where}: {name} is {fields[name]!r}; it must be a whole number")
        dims[name] = int(fields[name])
    try:
        problem = Problem.from_dims(operation.variant, operation.dtype, **dims)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return Entry(problem, fields["network"], fields["layer"])


def hold_out(training: list[Entry], validation: list[Entry]) -> list[Entry]:
    """Return the training problems whose layer family does not occur in validation.

    The same layer at another batch size is no unseen problem, so whole families are held out.
    """
    families = {entry.problem.layer_family for entry in validation}
    return [entry for entry in training if entry.problem.layer_family not in families]


def assert_disjoint(training: list[Entry], validation: list[Entry]) -> None:
    """Stop with a ``UserError`` if any canonical key is on both sides."""
    shared = {entry.problem.key for entry in training} & {entry.problem.key for entry in validation}
    if shared:
        raise UserError(
            f"{len(shared)} problems are both in the training and the validation set, first key {min(shared)}: "
            "an efficiency on them would not be one on unseen problems"
        )
