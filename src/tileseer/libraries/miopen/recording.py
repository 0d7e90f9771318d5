"""The times of MIOpen's find-dbs, and a recording of them: the best solver of each algorithm, one time of each.

Source: the files themselves, which are part of every ROCm installation.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tileseer.core import documents
from tileseer.core.atomic import building
from tileseer.core.errors import UserError
from tileseer.core.seal import file_digest
from tileseer.data.dataset_files import FILE
from tileseer.data.provenance import Recording, Taken
from tileseer.libraries.miopen.find_db import FileGpu, Key, UnusableError, parse_entry, read_lines
from tileseer.libraries.miopen.solvers import SOLVER_NAME
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import are_times
from tileseer.problems.problem import DIMS, Problem

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


REFUSED = "refused.tsv"
LATENCY = "what MIOpen's find step measured, one time a solver; a database has four solvers of a problem at most"
PROBLEM_COLUMNS = pa.schema([(name, pa.int32()) for name in DIMS])
"""The rest of a problem follows from these, the operation, and a column ``layout`` if there are several layouts."""
LAYOUT = pa.field("layout", pa.string())
KERNEL_COLUMNS = pa.schema([("kernel", pa.string())])
PAIR_COLUMNS = pa.schema(
    [
        *((name, pa.int32()) for name in ("problem", "kernel", "split_k")),
        ("status", pa.dictionary(pa.int32(), pa.string())),
        ("samples", pa.int32()),
        *((name, pa.float32()) for name in ("median_us", "cv")),
    ]
)


def digests(paths: Sequence[Path]) -> str:
    """Return the names and SHA-256 of files, for the provenance."""
    return ", ".join(f"{path.name} ({file_digest(path)[:16]})" for path in paths)


def write_solver_recording(
    folder: Path,
    database: Database,
    arch: str,
    device: str,
    provenance: Mapping[str, str],
    taken: Taken | None = None,
) -> Recording:
    """Write a recording of ``arch`` (gfx942_miopen) into a new folder, whole or not at all.

    ``device``: product of config/hardware.yaml; ``provenance``: what the times depend on, in words.
    """
    if folder.exists():
        raise UserError(f"{folder}: exists already; name a new folder, or remove it first")
    of_operation: dict[str, dict[tuple[Problem, str], float]] = {}
    for (problem, solver), milliseconds in database.times.items():
        times = of_operation.setdefault(f"{problem.variant}_{problem.dtype}", {})
        times[problem, solver] = milliseconds
    recording = Recording(
        arch=arch,
        device=device,
        operations=sorted(of_operation),
        taken=taken,
        latency=LATENCY,
        provenance=dict(provenance),
    )
    with building(folder) as made:
        for operation, times in of_operation.items():
            _write_operation(made / operation, times, arch)
        if database.refused:
            lines = ["file\tline\treason\ttext", *("\t".join(map(str, one)) for one in database.refused)]
            (made / REFUSED).write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents.write_document(made / FILE, recording)
    return recording


def _write_operation(folder: Path, times: Mapping[tuple[Problem, str], float], arch: str) -> None:
    """Write the tables of one operation; the same times in any order give the same bytes."""
    kind = library_of_arch(arch).kernel
    solvers = {pair: kind(pair[0].variant, pair[0].dtype, pair[0].ndim, pair[1]).name for pair in times}
    names = sorted(set(solvers.values()))
    problems = sorted({problem for problem, _ in times}, key=lambda p: (*p.dims, p.layout))
    problem_of, kernel_of = ({key: i for i, key in enumerate(keys)} for keys in (problems, names))
    rows = pd.DataFrame(
        {
            "problem": [problem_of[problem] for problem, _ in times],
            "kernel": [kernel_of[solvers[pair]] for pair in times],
            "split_k": 1,
            "status": "ok",
            "samples": 1,
            "median_us": 1000 * np.fromiter(times.values(), np.float64),
            "cv": np.nan,  # how far times scatter is not known
        }
    ).sort_values(["problem", "kernel"])
    folder.mkdir()
    dims = {name: [getattr(problem, name) for problem in problems] for name in DIMS}
    listed = pa.table(dims, PROBLEM_COLUMNS)
    if any(problem.layout for problem in problems):
        listed = listed.append_column(LAYOUT, pa.array([problem.layout for problem in problems]))
    tables = {
        "problems": listed,
        "kernels": pa.table({"kernel": names}, KERNEL_COLUMNS),
        "pairs": pa.Table.from_pandas(rows, PAIR_COLUMNS, preserve_index=False).replace_schema_metadata(None),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd", compression_level=19)
