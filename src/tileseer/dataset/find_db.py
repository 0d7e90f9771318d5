"""The times of MIOpen's find-dbs (``kernels.miopen.find_db``): the best solver of each algorithm, one time of each.

Source: the files themselves, which are part of every ROCm installation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tileseer.core.errors import UserError
from tileseer.gpus.hardware import target
from tileseer.kernels.miopen.find_db import Key, UnusableError, parse_entry, read_lines
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


def read_find_dbs(paths: Sequence[Path], arch: str, solvers: frozenset[str]) -> Database:
    """Read the times of ``solvers`` in find-dbs of one GPU; everything else is refused piece by piece.

    ``UserError``: a file that is damaged, of another GPU than ``arch``, or without any time.
    """
    database = Database()
    for path in paths:
        if path.name.startswith("gfx") and not path.name.startswith(target(arch)):
            mismatch = f"its name is of another GPU than --arch {target(arch)}; give the arch that was measured"
            raise UserError(f"{path}: {mismatch}")
        before = len(database.times)
        for number, line in enumerate(read_lines(path), start=1):
            _add(database, solvers, path.name, number, line)
            if len(database.times) + len(database.refused) > MOST_ENTRIES:
                raise UserError(f"{path}, line {number}: there are more than {MOST_ENTRIES:,} entries; split the file")
        if len(database.times) == before:
            why = next((f"; line {one.line}: {one.reason}" for one in database.refused if one.file == path.name), "")
            raise UserError(f"{path}: it contains no measured time{why}; give a find-db (*.fdb.txt, *.ufdb.txt)")
    return database


def _add(database: Database, solvers: frozenset[str], file: str, number: int, line: str) -> None:
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
    for value in filter(None, values.strip().split(";")):
        try:
            entry = parse_entry(value)
            try:
                milliseconds = float(entry.time)
            except ValueError:
                raise UnusableError("the time is no number") from None
            if not are_times(np.array(milliseconds)):
                raise UnusableError("the time is not between 1 ns and an hour")
            if entry.solver not in solvers:
                raise UnusableError("unknown solver")
            if (problem, entry.solver) in database.times:
                raise UnusableError("this problem and solver already have a time")
            database.times[problem, entry.solver] = milliseconds
        except UnusableError as error:
            database.refused.append(Refused(file, number, str(error), value))
