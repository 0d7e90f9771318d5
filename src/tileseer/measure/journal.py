"""The measurement journal: a CSV that grows, and Parquet when its job has ended. Nothing in it is measured again.

The first 24 columns are those of the reference's benchmark CSV, in its order; ours follow. The last one in the file,
``crc32``, is a checksum of the line before it, since a damaged digit is still a number. A line that does not fit is
kept in the file, passed over when reading, and reported with its number and the reason. The files of a journal::

    0.1.parquet   # Rows of the first job that measured.
    0.2.csv       # Those of the next one, if it was killed before they were columns, or a line is damaged.
    0.csv         # Lines of a job that is running, or was interrupted.
"""

from __future__ import annotations

import functools
import glob
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tileseer.core import parquet, seal
from tileseer.core.atomic import flush, write_text
from tileseer.core.errors import UserError, printed
from tileseer.core.locks import hold_first_free
from tileseer.core.reading import regular_file
from tileseer.measure.device import STATUSES, are_speeds, are_times
from tileseer.problems.problem import DIMS

REFERENCE_COLUMNS = ("kernel", "problem_idx", *DIMS, "latency_ms", "tflops", "non_zero")
OWN_COLUMNS = (
    *("status", "error", "samples", "latency_cv"),
    *("split_k", "kernel_id", "problem_key"),
    *("arch", "device", "device_kind", "seed", "measurement_id", "sentinel"),
)
COLUMNS = (*REFERENCE_COLUMNS, *OWN_COLUMNS)
HEADER = ",".join((*COLUMNS, "crc32"))
_TYPES = {
    **dict.fromkeys(("problem_idx", *DIMS, "non_zero", "samples", "split_k", "seed"), pa.int64()),
    **dict.fromkeys(("latency_ms", "tflops", "latency_cv", "sentinel"), pa.float64()),
}
_JOURNAL_NAME = re.compile(r"([^.].*?)(?:\.(\d+))?\.(csv|parquet)")
SCHEMA = pa.schema([(column, _TYPES.get(column, pa.string())) for column in COLUMNS])
BLOCK = 1 << 21
"""Bytes of a journal that are read together. No row is longer: of a longer line only the beginning is kept."""

MALFORMED = pa.schema([("journal", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])
"""A line that is no measurement: its journal, number in the file (the header is 1), the reason, and its beginning."""
LONGEST_SHOWN = 500
BLOCKS = 4
"""Blocks of lines that make one row group: the memory for it does not depend on the size of the journal."""
IDENTITY = ("kernel_id", "split_k", "problem_key")
"""Columns that name a measured pair, in every table of the benchmark stage."""


def pair_text(rows: pa.Table) -> pa.ChunkedArray:
    """Return the name of the pair of each row."""
    return pc.binary_join_element_wise(*(rows[column].cast(pa.string()) for column in IDENTITY), "/")


class MeasuredBy(NamedTuple):
    """What the rows say that one device has measured in its present state."""

    arch: str
    device: str
    device_kind: str
    measurement_id: str

    def rows(self, journal: pa.Table) -> pa.Table:
        """Return those of its own among rows of a journal."""
        own = [pc.equal(journal[name], value) for name, value in self._asdict().items()]
        return journal.filter(functools.reduce(pc.and_, own))


class Journal(AbstractContextManager["Journal"]):
    """A journal file, open for appending by this process alone."""

    def __init__(self, path: Path, timeout_s: float = 0.0) -> None:
        """Open ``path`` and make it, if need be; wait for another writer up to ``timeout_s``.

        What stands behind a link is written there. A link that leads nowhere is a ``UserError``: on the disk that is
        not mounted may be what was measured.
        """
        for link in (path, *path.parents):
            if link.is_symlink() and not link.exists():
                where = link.readlink()
                raise UserError(f"{path}: {link} is a link to {where}, which is not there; mount its disk or remove it")
        self.path = path
        path = path.resolve() if path.is_symlink() else path
        with ExitStack() as stack:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold_first_free({str(path): path.with_name(f".{path.name}.lock")}, timeout_s=timeout_s))
            if not path.exists() or path.stat().st_size == 0:
                write_text(path, HEADER + "\n")
            check_header(path)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            stack.callback(os.close, self._file)
            # What a dead writer left may not be on the disk yet; a receipt must vouch for nothing that the power can
            # take.
            os.fsync(self._file)
            self.close = stack.pop_all().close
            """Close the file and let others write it; every row is on the disk already."""

    def append(self, rows: pa.Table) -> None:
        """Write rows (``SCHEMA``) and wait until they are on the disk."""
        text = io.BytesIO()
        pa_csv.write_csv(rows.cast(SCHEMA), text, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
        lines = [b"%s,%08x\n" % (line, zlib.crc32(line)) for line in text.getvalue().splitlines()]
        size = os.fstat(self._file).st_size
        if os.pread(self._file, 1, max(0, size - 1)) != b"\n":
            # A writer died in mid-line: close the line, so that these rows stand on their own.
            lines.insert(0, b"\n")
        view = memoryview(b"".join(lines))
        try:
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def compress(self) -> None:
        """Replace the lines by columns, which need a tenth of the space; this process appends no more."""
        if self.path.is_symlink():
            # Its disk may be another one.
            return
        numbers = (number for path, number, _ in _named(self.path.parent, self.path.stem) if path == self.path)
        os.rename(self.path, self.path.with_suffix(f".{1 + max(numbers, default=0)}.csv"))
        for part in self.path.parent.glob(f"{glob.escape(self.path.stem)}.*.csv"):
            with suppress(_DamagedError):
                _compress_part(part)

    def __exit__(self, *exception: object) -> None:
        self.close()


class _DamagedError(Exception):
    """A part has malformed lines."""


def _compress_part(part: Path) -> None:
    columns = part.with_suffix(".parquet")
    sealed = columns.exists() and seal.seal_path(columns).exists()
    if not sealed and part.stat().st_size > len(HEADER) + 1:
        # Of columns that were moved away; what a kill leaves without a seal is made again.
        seal.seal_path(columns).unlink(missing_ok=True)
        blocks = _sound_blocks(part)
        with parquet.table_writer(columns, SCHEMA) as writer:
            while group := [*islice(blocks, BLOCKS)]:
                writer.write_table(pa.concat_tables(group))
        seal.write_seal(columns)
    flush(part.parent)
    part.unlink(missing_ok=True)


def _sound_blocks(part: Path) -> Iterator[pa.Table]:
    """Yield the rows of a CSV; ``_DamagedError`` at a malformed line, so that it remains for people to read."""
    for rows, malformed in _parsed_blocks(part):
        if malformed.num_rows:
            raise _DamagedError
        yield rows


def journal_files(journal: Path) -> list[Path]:
    """Return the files of a journal that exist, in the order of their rows."""
    parts: dict[int, Path] = {}
    for path, number, file in _named(journal.parent, journal.stem):
        # A job that was killed before it removed the lines leaves both.
        if path == journal and number and (file.suffix == ".parquet" or number not in parts):
            parts[number] = file
    return [*(parts[number] for number in sorted(parts)), *([journal] if journal.exists() else [])]


def journals_in(folder: Path) -> list[Path]:
    """Return the journals of a folder, by name."""
    return sorted({path for path, *_ in _named(folder)})


def _named(folder: Path, begin: str = "") -> Iterator[tuple[Path, int, Path]]:
    """Yield journal, number of the part (0: none) and path of each file of a folder whose name begins like this."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        # A folder may have thousands of journals.
        if name.startswith(begin) and (match := _JOURNAL_NAME.fullmatch(name)):
            yield folder / f"{match[1]}.csv", int(match[2] or 0), folder / name


def check_header(path: Path) -> None:
    """Raise a ``UserError`` if the header is not that of a journal, since nothing in the file can be trusted then."""
    with regular_file(path) as stream:
        header = stream.readline(len(HEADER) + 2).decode(errors="replace").rstrip("\r\n")
    if header != HEADER:
        raise UserError(
            f"{path}: line 1: the columns are not those of a journal; "
            "move the file away, and its pairs are measured again"
        )


def read_journal(
    path: Path, by: MeasuredBy | None = None, columns: Sequence[str] = COLUMNS, kernel_ids: pa.Array | None = None
) -> tuple[pa.Table, pa.Table]:
    """Return the measurements of a journal in file order, and its malformed lines; ``UserError`` if it is none.

    Of the measurements, those of one device and of some kernels, if they are given, and these columns.
    """
    own, ids = (MeasuredBy._fields if by else ()), (("kernel_id",) if kernel_ids is not None else ())
    needed = [*dict.fromkeys((*columns, *own, *ids))]
    while True:
        files = journal_files(path)
        parts = [(SCHEMA.empty_table().select(columns), MALFORMED.empty_table())]
        try:
            for rows, malformed in chain.from_iterable(_read_file(file, needed) for file in files):
                if kernel_ids is not None:
                    rows = rows.filter(pc.is_in(rows["kernel_id"], value_set=kernel_ids))
                parts.append(((by.rows(rows) if by else rows).select(columns), malformed))
        except FileNotFoundError:
            if files == journal_files(path):
                raise
            continue
        # If they changed, another process compressed lines, and some may be missing or here twice.
        if files == journal_files(path):
            rows, malformed = (pa.concat_tables(tables) for tables in zip(*parts, strict=True))
            return rows.combine_chunks(), malformed


def _read_file(file: Path, columns: Sequence[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield rows of a file, with these columns, and its malformed lines."""
    if file.suffix == ".csv":
        yield from _parsed_blocks(file)
        return
    try:
        seal.check_seal(file)
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        yield parquet.read_table(file, schema, columns=columns, bounded=False), MALFORMED.empty_table()
    except UserError as error:
        raise UserError(
            f"{file}: changed or damaged since it was written; restore it from a copy, or move it away and add "
            "--forcerun benchmark: its pairs are measured again, and no others"
        ) from error


def _parsed_blocks(path: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield measurements of a CSV in file order, and its malformed lines, a block at a time."""
    check_header(path)
    with regular_file(path) as stream:
        stream.readline()
        first = 2
        for lines in _lines(stream):
            yield _parsed(path, lines, first)
            first += len(lines)


def _lines(stream: BinaryIO) -> Iterator[pa.Array]:
    """Yield the lines without their ends, some at a time; the memory does not depend on how long a line is."""
    rest = b""
    while block := stream.read(BLOCK):
        whole, end, rest = (rest + block).rpartition(b"\n")
        rest = rest[:BLOCK]
        if end:
            yield _split(whole)
    if rest:
        yield _split(rest)


def _split(text: bytes) -> pa.Array:
    """Return the lines of a text. Arrow splits strings alone, and does not ask here whether they are UTF-8."""
    return pc.ascii_rtrim(pc.split_pattern(pa.array([text], pa.binary()).view(pa.string()), "\n").flatten(), "\r")


def _parsed(path: Path, lines: pa.Array, first: int) -> tuple[pa.Table, pa.Table]:
    """Return the measurements among ``lines``, and the others; the number of the first line is ``first``."""
    reasons = _damages(lines)
    whole = np.flatnonzero(reasons == "")
    try:
        rows = _table(lines.take(whole))
    except pa.ArrowInvalid:
        # Rare: a line with a checksum that fits and a value that does not.
        reasons[[at for at in whole if not _is_row(lines[at : at + 1])]] = "other fields than those of a row"
        whole = np.flatnonzero(reasons == "")
        rows = _table(lines.take(whole))
    possible = _are_possible(rows)
    reasons[whole[~possible]] = "no such status, or no such time"
    wrong = np.flatnonzero(reasons != "")
    columns = [pa.repeat(path.as_posix(), len(wrong)), first + wrong, reasons[wrong], _shown(lines.take(wrong))]
    return rows.filter(pa.array(possible)), pa.table(columns, MALFORMED.names).cast(MALFORMED)


def _damages(lines: pa.Array) -> np.ndarray:
    """Return why each line was not written as it is, object [n]; empty if it may be a measurement."""
    size = np.asarray(pc.binary_length(lines))
    reasons = np.select([size == 0, size >= BLOCK], ["an empty line", "longer than any row"], "").astype(object)
    candidates = np.flatnonzero(reasons == "")
    texts = lines.take(candidates).view(pa.binary()).to_pylist()
    whole = [line[-9:] == b",%08x" % zlib.crc32(line[:-9]) for line in texts]
    reasons[candidates] = np.where(whole, "", "its checksum does not fit")
    return reasons


def _table(lines: pa.Array) -> pa.Table:
    if not len(lines):
        return SCHEMA.empty_table()
    content = b"\n".join(lines.view(pa.binary()).to_pylist())
    # A null is an empty field of a number; text is as it stands.
    return pa_csv.read_csv(
        pa.BufferReader(content),
        pa_csv.ReadOptions(column_names=HEADER.split(","), use_threads=False, block_size=len(content) + 1),
        pa_csv.ParseOptions(quote_char=False),
        pa_csv.ConvertOptions(column_types=SCHEMA, include_columns=COLUMNS, null_values=[""]),
    )


def _is_row(line: pa.Array) -> bool:
    """Return whether a line alone is a row of the schema."""
    try:
        return bool(_table(line).num_rows)
    except pa.ArrowInvalid:
        return False


def _are_possible(rows: pa.Table) -> np.ndarray:
    """Return which rows a device can have given, bool [n]: a known status, and with ``ok`` a time and a speed."""
    samples = rows["samples"].to_pandas()
    timed = are_times(rows["latency_ms"].to_numpy()) & are_speeds(rows["tflops"].to_numpy())
    for name in ("latency_cv", "sentinel"):
        timed &= ~np.isinf(rows[name].to_numpy())
    possible = np.asarray(pc.is_in(rows["status"], pa.array(STATUSES))) & samples.between(0, 2**31 - 1).to_numpy()
    return possible & (timed | (rows["status"].to_numpy() != "ok"))


def _shown(lines: pa.Array) -> pa.Array:
    """Return the beginning of each line as a terminal may get it."""
    short = pc.binary_slice(lines.view(pa.binary()), 0, LONGEST_SHOWN).to_pylist()
    return pa.array(
        [printed(line.decode("ascii", "backslashreplace")).replace("\t", "\\t") for line in short], pa.string()
    )
