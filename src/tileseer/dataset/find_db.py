"""MIOpen's find-db: measured times of its solvers, one line a problem, as a recording.

A line is ``KEY=VALUES``. The key of a 2D problem, with what a 3D one adds in brackets, is::

    C-[D-]H-W-[Zx]YxX-K-[OD-]OH-OW-N-PADS-STRIDES-DILATIONS-BIAS-LAYOUT-DTYPE-DIRECTION[_gG]

The gradients (B: of the input, W: of the filter) have input and output swapped: their first C, H and W are the layer's
K, OH and OW. Values are ``SOLVER:MS,WORKSPACE,ALGORITHM`` or, in older files, ``ALGORITHM:SOLVER,MS,WORKSPACE,...``,
apart by semicolons. A database has the best solver of each algorithm, and one time of each.
Source: the files themselves, which are part of every ROCm installation.
"""

import bz2
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tileseer.core.errors import UserError
from tileseer.gpus.hardware import target
from tileseer.measure.device import are_times
from tileseer.problems.problem import Problem

VARIANTS = {"F": "forward", "B": "bwd_data", "W": "bwd_weight"}
DTYPES = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}
LAYOUTS = {"NCHW": 2, "NCDHW": 3}
LONGEST_LINE, LARGEST = 2**20, 2**28
"""Bytes of a line and of a database, unpacked; MIOpen's largest database has a fifth of that."""
MOST_ENTRIES = 1_000_000
"""Read or refused, twice as many as MIOpen's largest database has."""
_KEY = re.compile(
    r"(?P<sizes>\d+(?:-\d+){2,3})-(?P<filter>\d+(?:x\d+){1,2})-(?P<others>\d+(?:-\d+){3,4})-"
    r"(?P<pads>\d+(?:x\d+){1,2})-(?P<strides>\d+(?:x\d+){1,2})-(?P<dilations>\d+(?:x\d+){1,2})-\d+-"
    r"(?P<layout>[A-Z0-9-]+?)-(?P<dtype>[A-Z0-9]+)-(?P<direction>[FBW])(?:_g(?P<groups>\d+))?",
    re.ASCII,
)


class Refused(NamedTuple):
    """Something of a file that is no measurement for us."""

    file: str
    line: int
    reason: str
    text: str


@dataclass
class Database:
    """What was read of some files."""

    times: dict[tuple[Problem, str], float] = field(default_factory=dict)
    """Milliseconds, by problem and solver, in the order of the files."""
    refused: list[Refused] = field(default_factory=list)

    def reasons(self) -> dict[str, int]:
        """How often each reason was one, most often first."""
        return dict(Counter(one.reason for one in self.refused).most_common())


class _RefusedError(Exception):
    """The reason for which a part of a line does not count."""


def read_find_dbs(paths: Sequence[Path], arch: str, solvers: frozenset[str]) -> Database:
    """Times of ``solvers`` in find-dbs of one GPU; everything else is refused piece by piece.

    ``UserError``: a file that is damaged, of another GPU than ``arch``, or without any time.
    """
    database = Database()
    for path in paths:
        if path.name.startswith("gfx") and not path.name.startswith(target(arch)):
            mismatch = f"its name is of another GPU than --arch {target(arch)}; give the arch that was measured"
            raise UserError(f"{path}: {mismatch}")
        before = len(database.times)
        for number, line in enumerate(_lines(path), start=1):
            _add(database, solvers, path.name, number, line)
            if len(database.times) + len(database.refused) > MOST_ENTRIES:
                raise UserError(f"{path}, line {number}: there are more than {MOST_ENTRIES:,} entries; split the file")
        if len(database.times) == before:
            why = next((f"; line {one.line}: {one.reason}" for one in database.refused if one.file == path.name), "")
            raise UserError(f"{path}: it contains no measured time{why}; give a find-db (*.fdb.txt, *.ufdb.txt)")
    return database


def _lines(path: Path) -> Iterator[str]:
    """Lines of a file, unpacked; ``UserError`` where it is damaged."""
    size = 0
    with path.open("rb") as file:
        packed = file.read(3) == b"BZh"
        file.seek(0)
        with bz2.open(file) if packed else file as stream:
            try:
                while line := stream.readline(LONGEST_LINE):
                    size += len(line)
                    if len(line) == LONGEST_LINE or size > LARGEST:
                        much = (
                            f"a line of {LONGEST_LINE:,} bytes" if size <= LARGEST else f"more than {LARGEST:,} bytes"
                        )
                        raise UserError(f"{path}: has {much}, unpacked: this is no find-db")
                    yield line.decode().rstrip("\r\n")
            except (ValueError, EOFError, OSError) as error:
                raise UserError(f"{path}: is damaged or no text ({error}); fetch it again") from error


def _add(database: Database, solvers: frozenset[str], file: str, number: int, line: str) -> None:
    """Add what one line says."""
    key, equals, values = line.partition("=")
    if not line.strip():
        return
    try:
        if not equals:
            raise _RefusedError("no KEY=VALUES")
        problem = parse_key(key)
    except _RefusedError as error:
        database.refused.append(Refused(file, number, str(error), line))
        return
    for value in filter(None, values.strip().split(";")):
        try:
            solver, milliseconds = parse_value(value)
            if solver not in solvers:
                raise _RefusedError("unknown solver")
            if (problem, solver) in database.times:
                raise _RefusedError("this problem and solver already have a time")
            database.times[problem, solver] = milliseconds
        except _RefusedError as error:
            database.refused.append(Refused(file, number, str(error), value))


def parse_key(key: str) -> Problem:
    """Problem of a key."""
    match = _KEY.fullmatch(key.strip())
    if not match:
        raise _RefusedError("the key has another form")
    if match["layout"] not in LAYOUTS:
        raise _RefusedError(f"layout {match['layout']}: problems here are {' or '.join(LAYOUTS)}")
    if match["dtype"] not in DTYPES:
        raise _RefusedError(f"data type {match['dtype']}: problems here are {', '.join(DTYPES)}")
    ndim = LAYOUTS[match["layout"]]
    first, *inputs = map(int, match["sizes"].split("-"))
    second, *outputs, batch = map(int, match["others"].split("-"))
    if match["direction"] != "F":
        first, inputs, second, outputs = second, outputs, first, inputs
    axes = [[int(one) for one in match[name].split("x")] for name in ("filter", "pads", "strides", "dilations")]
    if {len(inputs), len(outputs), *map(len, axes)} != {ndim}:
        raise _RefusedError("the key has another form")
    dims = {"N": batch, "C": first, "K": second, "G": int(match["groups"] or 1)}
    names = (("Di", "Hi", "Wi"), ("Z", "Y", "X"), *(_of_axes(name) for name in ("pad", "stride", "dilation")))
    for own, values in zip(names, (inputs, *axes), strict=True):
        dims |= dict(zip(own[-ndim:], values, strict=True))
    try:
        problem = Problem.from_dims(VARIANTS[match["direction"]], DTYPES[match["dtype"]], **dims)
    except UserError as error:
        raise _RefusedError("no convolution, or too large a one") from error
    if problem.ndim != ndim:
        raise _RefusedError("a 3D problem without depth, which is a 2D one here")
    if list(problem.output[-ndim:]) != outputs:
        raise _RefusedError("the output's size does not follow from the input's")
    return problem


def parse_value(value: str) -> tuple[str, float]:
    """Solver and milliseconds of one entry."""
    before, colon, behind = value.strip().partition(":")
    parts = behind.split(",")
    if not colon or len(parts) < 3:
        raise _RefusedError("the entry has another form")
    if before.startswith("miopenConvolution"):
        before, *parts = parts
    try:
        milliseconds = float(parts[0])
    except ValueError:
        raise _RefusedError("the time is no number") from None
    if not are_times(np.array(milliseconds)):
        raise _RefusedError("the time is not between 1 ns and an hour")
    return before, milliseconds


def _of_axes(name: str) -> tuple[str, str, str]:
    return f"{name}_d", f"{name}_h", f"{name}_w"
