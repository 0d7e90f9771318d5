"""The times of MIOpen's find-dbs (``kernels.miopen.find_db``): the best solver of each algorithm, one time of each.

Source: the files themselves, which are part of every ROCm installation.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tileseer.core.errors import UserError
from tileseer.libraries.miopen.find_db import FileGpu, Key, UnusableError, parse_entry, read_lines
from tileseer.libraries.miopen.solvers import SOLVER_NAME
from tileseer.measure.device import are_times
from tileseer.problems.problem import Problem

MOST_ENTRIES = 1_000_000
"""Read or refused, twice as many as MIOpen's largest database has."""


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
        """Return how often each reason was one, most often first."""
        return dict(Counter(one.reason for one in self.refused).most_common())


def gpu_of_files(paths: Sequence[Path], gpu: str) -> FileGpu | None:
    """Return the GPU that the files are of by their names; None if no name begins with a GPU.

    ``UserError``: a name is of another target than ``gpu``, or of another number of compute units than the first.
    """
    first: FileGpu | None = None
    for path in paths:
        own = FileGpu.of(path.name)
        if own is None:
            if path.name.startswith("gfx") and not path.name.startswith(gpu):
                raise UserError(f"{path}: its name is of another GPU than {gpu}; give the --arch that was measured")
            continue
        first = first or own
        if own.arch != gpu:
            raise UserError(
                f"{path}: its name is of {own.arch}, but --arch is of {gpu}; give the arch that was measured"
            )
        if own.compute_units != first.compute_units:
            units = f"{own.compute_units} compute units, others of {first.compute_units}"
            raise UserError(f"{path}: its name is of a GPU with {units}; import each GPU into a recording of its own")
    return first


def read_find_dbs(paths: Sequence[Path]) -> Database:
    """Read the times in find-dbs of one GPU; everything else is refused, a record as a whole if a part is unreadable.

    ``UserError``: a file that is damaged, or without any time.
    """
    database = Database()
    for path in paths:
        before = len(database.times)
        for number, line in enumerate(read_lines(path), start=1):
            _add(database, path.name, number, line)
            if len(database.times) + len(database.refused) > MOST_ENTRIES:
                raise UserError(f"{path}, line {number}: there are more than {MOST_ENTRIES:,} entries; split the file")
        if len(database.times) == before:
            why = next((f"; line {one.line}: {one.reason}" for one in database.refused if one.file == path.name), "")
            raise UserError(f"{path}: it contains no measured time{why}; give a find-db (*.fdb.txt, *.ufdb.txt)")
    return database


def _add(database: Database, file: str, number: int, line: str) -> None:
    """Add what one line says."""
    key, equals, values = line.partition("=")
    if not line.strip():
        return
    try:
        if not equals:
            raise UnusableError("no KEY=VALUES")
        problem = Key.parse(key.strip()).problem()
    except UnusableError as error:
        database.refused.append(Refused(file, number, str(error), line))
        return
    texts = [text for text in values.strip().split(";") if text]
    try:
        entries = [parse_entry(text) for text in texts]
        if not all(re.fullmatch(SOLVER_NAME, one.solver) for one in entries):
            raise UnusableError("a solver's name has another form")
    except UnusableError as error:
        # The entry may be the fastest one: without it another would be taken for that.
        database.refused.append(Refused(file, number, str(error), line))
        return
    for text, entry in zip(texts, entries, strict=True):
        try:
            try:
                milliseconds = float(entry.time)
            except ValueError:
                raise UnusableError("the time is no number") from None
            if not are_times(np.array(milliseconds)):
                raise UnusableError("the time is not between 1 ns and an hour")
            if (problem, entry.solver) in database.times:
                raise UnusableError("this problem and solver already have a time")
            database.times[problem, entry.solver] = milliseconds
        except UnusableError as error:
            database.refused.append(Refused(file, number, str(error), text))
