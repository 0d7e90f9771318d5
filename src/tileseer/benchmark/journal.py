"""The measurement journal: an append-only CSV. What is in it was measured and is never measured again.

The first 24 columns are those of the reference's benchmark CSV, in its order; ours follow. The last one in the file,
``crc32``, is a checksum of the line before it, since a damaged digit is still a number. A line that does not fit is
kept in the file, passed over when reading, and reported with its number and the reason.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tileseer.benchmark.claim import Claim
from tileseer.conv.problem import DIMS
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.devices.base import SLOWEST_MS, STATUSES

REFERENCE_COLUMNS = ("kernel", "problem_idx", *DIMS, "latency_ms", "tflops", "non_zero")
OWN_COLUMNS = (
    "status", "error", "samples", "latency_cv", "split_k", "kernel_id", "problem_key", "arch", "device",
    "device_kind", "seed", "measurement_id", "sentinel",
)  # fmt: skip
COLUMNS = (*REFERENCE_COLUMNS, *OWN_COLUMNS)
HEADER = ",".join((*COLUMNS, "crc32"))
_TYPES = {
    **dict.fromkeys(("problem_idx", *DIMS, "non_zero", "samples", "split_k", "seed"), pa.int64()),
    **dict.fromkeys(("latency_ms", "tflops", "latency_cv", "sentinel"), pa.float64()),
}
SCHEMA = pa.schema([(column, _TYPES.get(column, pa.string())) for column in COLUMNS])
BLOCK = 1 << 21
"""Bytes of a journal that are read together. No row is longer: of a longer line only the beginning is kept."""

Malformed = tuple[str, int, str, str]
"""A line that is no measurement: its journal, number in the file (the header is 1), the reason, and its text.

Of a plain tuple the garbage collector keeps no count: there may be millions.
"""


class MeasuredBy(NamedTuple):
    """What the rows say that one device has measured in its present state."""

    arch: str
    device: str
    device_kind: str
    measurement_id: str

    def rows(self, journal: pa.Table) -> pa.Table:
        """Those of its own among rows of a journal."""
        own = [pc.equal(journal[name], value) for name, value in self._asdict().items()]
        return journal.filter(functools.reduce(pc.and_, own))


class Journal:
    """A journal file, open for appending by this process alone (``tileseer.benchmark.claim``)."""

    def __init__(self, path: Path, timeout_s: float = 0.0) -> None:
        """Open ``path`` and make it, if need be; wait for another writer up to ``timeout_s``.

        What stands behind a link is written there. A link that leads nowhere is a ``UserError``: on the disk that is
        not mounted may be what was measured.
        """
        for link in (path, *path.parents):
            if link.is_symlink() and not link.exists():
                where = link.readlink()
                raise UserError(f"{path}: {link} is a link to {where}, which is not there; mount its disk or remove it")
        path = path.resolve() if path.is_symlink() else path
        self._path = path
        self._claim = Claim(path, timeout_s)
        try:
            self._open(path)
        except BaseException:
            self._claim.release()
            raise

    def _open(self, path: Path) -> None:
        if not path.exists() or path.stat().st_size == 0:
            write_text(path, HEADER + "\n")
        check_header(path)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        # What a dead writer left may not be on the disk yet; a receipt must vouch for nothing that the power can take.
        os.fsync(self._file)

    def append(self, rows: pa.Table) -> None:
        """Write rows (``SCHEMA``) and wait until they are on the disk; ``UserError`` if another process took over."""
        self._claim.check()
        text = io.BytesIO()
        pa_csv.write_csv(rows.cast(SCHEMA), text, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
        lines = [_with_checksum(line) for line in text.getvalue().splitlines()]
        size = os.fstat(self._file).st_size
        if os.pread(self._file, 1, max(0, size - 1)) != b"\n":
            # A writer died or stalled in mid-line: close the line, so that these rows stand on their own.
            lines.insert(0, b"\n")
        self._write(b"".join(lines))

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def close(self) -> None:
        """Close the file and let others write it; every row is on the disk already."""
        os.close(self._file)
        self._claim.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_whole(line: bytes) -> bool:
    """Whether a line of a journal, without its end, is as it was written."""
    return line[-9:] == b",%08x" % zlib.crc32(line[:-9])


def check_header(path: Path) -> None:
    """Raise a ``UserError`` if the header is not that of a journal, since nothing in the file can be trusted then."""
    with path.open("rb") as stream:
        found = stream.readline(len(HEADER) + 2).decode(errors="replace").rstrip("\r\n")
    if found != HEADER:
        raise UserError(
            f"{path}: line 1: the columns are not those of a journal; "
            "move the file away, and its pairs are measured again"
        )


def _with_checksum(line: bytes) -> bytes:
    return b"%s,%08x\n" % (line, zlib.crc32(line))


def read(path: Path) -> tuple[pa.Table, list[Malformed]]:
    """Measurements of a journal in file order, and its malformed lines; ``UserError`` if it is no journal."""
    parts, malformed = [SCHEMA.empty_table()], []
    for rows, lines in batches(path):
        parts.append(rows)
        malformed += lines
    return pa.concat_tables(parts).combine_chunks(), malformed


def batches(path: Path) -> Iterator[tuple[pa.Table, list[Malformed]]]:
    """What ``read`` returns, some thousand lines at a time."""
    check_header(path)
    with path.open("rb") as stream:
        stream.readline()
        first = 2
        for lines in _lines(stream):
            yield _parsed(path, lines, first)
            first += len(lines)


def _lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends, some at a time; the memory does not depend on how long a line is."""
    rest = b""
    while block := stream.read(BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[:BLOCK]
        yield lines
    if rest:
        yield [rest]


def of_device(
    path: Path, by: MeasuredBy, columns: Sequence[str], malformed: list[Malformed] | None = None
) -> Iterator[pa.Table]:
    """Some columns of what one device has measured, in one table or more; ``malformed`` gets all other lines."""
    yield SCHEMA.empty_table().select(columns)
    for rows, lines in batches(path):
        if malformed is not None:
            malformed += lines
        yield by.rows(rows).select(columns)


def read_lines(path: Path, places: Sequence[tuple[int, int]]) -> pa.Table:
    """Measurements of some lines of a journal, given as first byte and the one after the last."""
    check_header(path)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return _parsed(path, [text[begin:end] for begin, end in places], 0)[0]


def _parsed(path: Path, lines: Sequence[bytes], first: int) -> tuple[pa.Table, list[Malformed]]:
    """Measurements among ``lines``, and the others; the number of the first line is ``first``."""
    lines = [line.rstrip(b"\r\n") for line in lines]
    faults = {number: fault for number, line in enumerate(lines) if (fault := _fault(line))}
    whole = [number for number in range(len(lines)) if number not in faults]
    try:
        rows = _table([lines[number] for number in whole])
    except pa.ArrowInvalid:
        # Rare: a line with a checksum that fits and a value that does not. Each is asked alone.
        faults |= {number: "a value is of another type" for number in whole if not _is_table(lines[number])}
        whole = [number for number in whole if number not in faults]
        rows = _table([lines[number] for number in whole])
    sound = _are_possible(rows)
    if not pc.all(sound).as_py():
        faults |= {
            whole[row]: "no such status, or no such time" for row in pc.indices_nonzero(pc.invert(sound)).to_pylist()
        }
        rows = rows.filter(sound)
    name = path.as_posix()
    return rows, [
        (name, first + number, fault, lines[number][:500].decode("ascii", "backslashreplace")[:500])
        for number, fault in sorted(faults.items())
    ]


def _table(lines: Sequence[bytes]) -> pa.Table:
    if not lines:
        return SCHEMA.empty_table()
    content = b"\n".join(lines)
    # A null is an empty field of a number; text is as it stands.
    return pa_csv.read_csv(
        pa.BufferReader(content),
        pa_csv.ReadOptions(column_names=HEADER.split(","), use_threads=False, block_size=len(content) + 1),
        pa_csv.ParseOptions(quote_char=False),
        pa_csv.ConvertOptions(column_types=SCHEMA, include_columns=COLUMNS, null_values=[""]),
    )


def _is_table(line: bytes) -> bool:
    try:
        return _table([line]).num_rows == 1
    except pa.ArrowInvalid:
        return False


def _are_possible(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows a device can have given: a status that there is, and with ``ok`` a time."""
    time = rows["latency_ms"]
    timed = pc.fill_null(pc.and_(pc.greater(time, 0), pc.less(time, SLOWEST_MS)), False)
    return pc.and_(pc.is_in(rows["status"], pa.array(STATUSES)), pc.or_(timed, pc.not_equal(rows["status"], "ok")))


def _fault(line: bytes) -> str:
    """Why a line is no measurement; empty if it is one."""
    if not line:
        return "an empty line"
    if len(line) >= BLOCK:
        return "longer than any row"
    commas = line.count(b",")
    if commas != len(COLUMNS):
        return f"{commas + 1} fields instead of {len(COLUMNS) + 1}"
    return "" if is_whole(line) else "the line was damaged"
