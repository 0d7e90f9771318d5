"""The times of MIOpen's find-dbs, and a recording of them: the best solver of each algorithm, one time of each.

Source: the files themselves, which are part of every ROCm installation.
"""

import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
from tileseer.facts import hardware
from tileseer.facts.config import Config
from tileseer.facts.hardware import Hardware
from tileseer.libraries.miopen.find_db import (
    FLAT,
    NO_CONVOLUTION,
    OTHER_OUTPUT,
    FileGpu,
    Key,
    Layer,
    UnusableError,
    parse_entry,
    read_lines,
)
from tileseer.libraries.miopen.library import MIOPEN
from tileseer.libraries.miopen.solvers import SOLVER_NAME, Release, in_words, is_gone
from tileseer.libraries.program import DEPTH_DIMS
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import are_times
from tileseer.problems.problem import DIMS, wrong_rows
from tileseer.problems.shapes import output_extents

MOST_ENTRIES = 2_000_000
"""Read or refused, four times as many as MIOpen's largest database has."""
FEWEST_PROBLEMS = 100
"""Of an operation, fewer of which make no model whose figures say anything."""
GONE = "this version of MIOpen has the solver no longer"
OPERATION_COLUMNS = ["variant", "dtype", "ndim", "layout"]


class Refused(NamedTuple):
    """Something of a file that is no measurement for us."""

    file: str
    line: int
    reason: str
    text: str


@dataclass(frozen=True, eq=False)
class Database:
    """What was read of some files."""

    problems: pd.DataFrame
    """A row for each problem: ``OPERATION_COLUMNS`` and the 19 dimensions."""
    times: pd.DataFrame
    """``problem`` (row), ``solver`` and ``milliseconds``, in the order of the files."""
    refused: list[Refused] = field(default_factory=list)

    def reasons(self) -> dict[str, int]:
        """Return how often each reason was one, most often first."""
        return dict(Counter(one.reason for one in self.refused).most_common())


def gpu_of_files(paths: Sequence[Path], gpu: str) -> FileGpu | None:
    """Return the GPU that the files are of by their names; None if no name begins with a GPU.

    ``UserError``: a name is of another target than ``gpu``, or of another number of compute units than the first.
    """
    named = {path: FileGpu.of(path.name) for path in paths}
    known = [own for own in named.values() if own]
    for path, own in named.items():
        if path.name.startswith("gfx") and not (own.arch == gpu if own else path.name.startswith(gpu)):
            named_gpu = own.arch if own else path.name.partition(".")[0]
            way = f"write --arch {named_gpu}" if len(named) == 1 else "import the files of each GPU alone"
            raise UserError(f"{path}: its name is of {named_gpu}, not of {gpu}; {way}")
        if own and own.compute_units != known[0].compute_units:
            units = f"{own.compute_units} compute units, others of {known[0].compute_units}"
            raise UserError(f"{path}: its name is of a GPU with {units}; import each GPU into a recording of its own")
    return known[0] if known else None


def usual_product(arch: str, gpu: str) -> str | None:
    """Return the product that the default configuration has for an arch of a target, or for the target."""
    products = Config().benchmark.products
    names = (*([arch] if arch != gpu else []), f"{gpu}_miopen", gpu)
    return next((products[name] for name in names if name in products), None)


def product_of_units(products: Mapping[str, Hardware], arch: str, units: int) -> Hardware:
    """Return the product of an arch, or a target, with so many compute units: the usual one if it has them."""
    gpu = hardware.target(arch)
    usual = usual_product(arch, gpu)
    if usual and usual in products and products[usual].compute_units == units:
        return products[usual]
    return hardware.product_of_units(products, gpu, units)


def read_find_dbs(paths: Sequence[Path], release: Release = (), unusable: list[str] | None = None) -> Database:
    """Read the times in find-dbs of one GPU; everything else is refused, a record as a whole if a part is unreadable.

    ``release`` of MIOpen: times of solvers that it may lack are refused. ``UserError``: a file that is damaged, or
    without any time. With ``unusable``, it is left out with a line there.
    """
    files = list[_Lines]()
    for path in paths:
        try:
            files.append(_Lines(path, release))
        except UserError as error:
            if unusable is None:
                raise
            unusable.append(str(error))
    every = pd.concat([_NO_PROBLEMS, *(one.problems for one in files)], ignore_index=True)
    first = np.cumsum([0, *(len(one.problems) for one in files)])
    times = (one.times.assign(row=one.times["row"] + at, file=one.name) for one, at in zip(files, first, strict=False))
    found = pd.concat([_NO_TIMES, *times], ignore_index=True)
    # Every column of a problem in one number.
    number = every.groupby([*OPERATION_COLUMNS, *DIMS], sort=False).ngroup().to_numpy(np.int64)
    found["problem"] = number[found["row"].to_numpy(np.int64)]
    again = found.duplicated(["problem", "solver"])
    refused = [one for file in files for one in file.refused]
    refused += [
        Refused(file, number, "this problem and solver already have a time", text)
        for file, number, text in found.loc[again, ["file", "number", "text"]].itertuples(index=False, name=None)
    ]
    place = {one.name: place for place, one in enumerate(files)}
    return Database(
        every.iloc[np.unique(number, return_index=True)[1]].reset_index(drop=True),
        found.loc[~again, ["problem", "solver", "milliseconds"]].reset_index(drop=True),
        sorted(refused, key=lambda one: (place[one.file], one.line)),
    )


class _Lines:
    """The lines of one file: each is read once, and all are checked together."""

    def __init__(self, path: Path, release: Release) -> None:
        self.name, self._release = path.name, release
        self.refused: list[Refused] = []
        lines = list[tuple[int, str, str]](), list[Layer]()
        for number, line in enumerate(read_lines(path), start=1):
            key, equals, values = line.partition("=")
            if not line.strip():
                continue
            try:
                if not equals:
                    raise UnusableError("no KEY=VALUES")
                lines[1].append(Key.parse(key.strip()).layer())
                lines[0].append((number, line, values))
            except UnusableError as error:
                self.refused.append(Refused(self.name, number, str(error), line))
            if len(lines[0]) + len(self.refused) > MOST_ENTRIES:
                self._refuse_size(path, number)
        kept, layers = self._convolutions(*lines)
        rows = [(*layer[:4], *layer.dims) for layer in layers]
        self.problems = pd.DataFrame(rows, columns=[*OPERATION_COLUMNS, *DIMS])
        self.times = self._times(path, kept)
        if self.times.empty:
            if not lines[0] and not self.refused:
                raise UserError(f"{path}: is empty; MIOpen fills it when a program searches, or give that of ROCm")
            why = f"; line {self.refused[0].line}: {self.refused[0].reason}" if self.refused else ""
            raise UserError(f"{path}: it contains no measured time{why}; give a find-db (*.fdb.txt, *.ufdb.txt)")

    def _refuse_size(self, path: Path, number: int) -> None:
        raise UserError(f"{path}, line {number}: there are more than {MOST_ENTRIES:,} entries; split the file")

    def _convolutions(
        self, lines: list[tuple[int, str, str]], layers: list[Layer]
    ) -> tuple[list[tuple[int, str, str]], list[Layer]]:
        """Return the lines whose keys are convolutions, with these; the others are refused."""
        if not layers:
            return lines, layers
        values = np.array([layer.dims for layer in layers])
        wrong = wrong_rows(values)
        checked = dict(zip(DIMS, np.where(wrong[:, None], 1, values).T, strict=True))
        flat = np.all([checked[name] == (name != "pad_d") for name in DEPTH_DIMS], axis=0)
        output = np.stack(np.broadcast_arrays(*output_extents(checked)), axis=1)
        reasons = np.select(
            [
                wrong,
                flat & np.array([layer.ndim == 3 for layer in layers]),
                (output != np.array([layer.output for layer in layers])).any(axis=1),
            ],
            [1, 2, 3],
        )
        texts = ("", NO_CONVOLUTION, FLAT, OTHER_OUTPUT)
        self.refused += [
            Refused(self.name, lines[row][0], texts[reasons[row]], lines[row][1]) for row in np.flatnonzero(reasons)
        ]
        kept = np.flatnonzero(reasons == 0)
        return [lines[row] for row in kept], [layers[row] for row in kept]

    def _times(self, path: Path, lines: list[tuple[int, str, str]]) -> pd.DataFrame:
        """Return the columns of ``_NO_TIMES`` of each time, without the file.

        A line is refused as a whole if one entry cannot be read: that may be the fastest one, and without it another
        would be taken for that.
        """
        rows = list[tuple[int, int, str, str, str]]()
        gone: dict[str, bool] = {}
        for place, (number, line, values) in enumerate(lines):
            before = len(rows)
            try:
                for text in filter(None, values.strip().split(";")):
                    entry = parse_entry(text)
                    if entry.solver not in gone:
                        if not re.fullmatch(SOLVER_NAME, entry.solver):
                            raise UnusableError("a solver's name has another form")
                        gone[entry.solver] = is_gone(entry.solver, self._release)
                    if gone[entry.solver]:
                        self.refused.append(Refused(self.name, number, GONE, text))
                    else:
                        rows.append((place, number, sys.intern(entry.solver), text, entry.time))
            except UnusableError as error:
                del rows[before:]
                self.refused.append(Refused(self.name, number, str(error), line))
            if len(rows) + len(self.refused) > MOST_ENTRIES:
                self._refuse_size(path, number)
        table = pd.DataFrame(rows, columns=["row", "number", "solver", "text", "milliseconds"])
        table["milliseconds"] = pd.to_numeric(table["milliseconds"], errors="coerce").astype(np.float64)
        usable = are_times(table["milliseconds"].to_numpy())
        for number, text, time in table.loc[~usable, ["number", "text", "milliseconds"]].itertuples(index=False):
            reason = "the time is no number" if np.isnan(time) else "the time is not between 1 ns and an hour"
            self.refused.append(Refused(self.name, number, reason, text))
        return table[usable]


_NO_PROBLEMS = pd.DataFrame(columns=[*OPERATION_COLUMNS, *DIMS]).astype(dict.fromkeys(("ndim", *DIMS), np.int64))
_NO_TIMES = pd.DataFrame(columns=["row", "number", "solver", "text", "milliseconds", "file"]).astype(
    {"row": np.int64, "number": np.int64, "milliseconds": np.float64}
)
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


def taken_with(release: Release) -> Taken:
    """Return with what times were taken that MIOpen measured."""
    return Taken(library=f"{MIOPEN.title} {in_words(release) or '(version not known)'}")


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
    *,
    leave_out: Collection[str] = (),
    replace: bool = False,
) -> Recording:
    """Write a recording of ``arch`` (gfx942_miopen) into a folder, whole or not at all; a new one unless ``replace``.

    ``device``: product of config/hardware.yaml; ``provenance``: what the times depend on, in words; ``leave_out``:
    operations that are not written.
    """
    if folder.exists() and not replace:
        raise UserError(f"{folder}: exists already; name a new folder, or remove it first")
    operations = (database.problems["variant"] + "_" + database.problems["dtype"]).to_numpy(object)
    recording = Recording(
        arch=arch,
        device=device,
        operations=sorted(set(operations[database.times["problem"]]).difference(leave_out)),
        taken=taken,
        latency=LATENCY,
        provenance=dict(provenance),
    )
    with building(folder) as made:
        for operation in recording.operations:
            rows = np.flatnonzero(operations == operation)
            times = database.times[np.isin(database.times["problem"], rows)]
            _write_operation(made / operation, database.problems, times, arch)
        if database.refused:
            lines = ["file\tline\treason\ttext", *("\t".join(map(str, one)) for one in database.refused)]
            (made / REFUSED).write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents.write_document(made / FILE, recording)
    return recording


def _write_operation(folder: Path, problems: pd.DataFrame, times: pd.DataFrame, arch: str) -> None:
    """Write the tables of one operation; the same times in any order give the same bytes."""
    kind = library_of_arch(arch).kernel
    rows, problem = np.unique(times["problem"], return_inverse=True)
    listed = problems.iloc[rows]
    # The place of each problem among the sorted ones.
    order = np.lexsort([listed[name].to_numpy() for name in ("layout", *DIMS[::-1])])
    problem, listed = np.argsort(order)[problem], listed.iloc[order]
    solvers = times["solver"].astype("category")
    pairs = solvers.cat.codes.to_numpy() * 4 + listed["ndim"].to_numpy()[problem]
    distinct, kernel = np.unique(pairs, return_inverse=True)
    made = [
        kind(*listed[["variant", "dtype"]].iloc[0], int(pair % 4), solvers.cat.categories[pair // 4]).name
        for pair in distinct
    ]
    names, place = np.unique(made, return_inverse=True)
    table = pd.DataFrame(
        {
            "problem": problem,
            "kernel": place[kernel],
            "split_k": 1,
            "status": "ok",
            "samples": 1,
            "median_us": 1000 * times["milliseconds"].to_numpy(),
            "cv": np.nan,  # how far times scatter is not known
        }
    ).sort_values(["problem", "kernel"])
    folder.mkdir()
    columns = PROBLEM_COLUMNS.append(LAYOUT) if listed["layout"].any() else PROBLEM_COLUMNS
    tables = {
        "problems": pa.Table.from_pandas(listed, columns, preserve_index=False).replace_schema_metadata(None),
        "kernels": pa.table({"kernel": names}, KERNEL_COLUMNS),
        "pairs": pa.Table.from_pandas(table, PAIR_COLUMNS, preserve_index=False).replace_schema_metadata(None),
    }
    for name, content in tables.items():
        pq.write_table(content, folder / f"{name}.parquet", compression="zstd", compression_level=19)
