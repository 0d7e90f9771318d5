"""The measurement journal: an append-only CSV. What is in it was measured and is never measured again.

The first 24 columns are those of the reference's benchmark CSV, in its order; ours follow. The last one in the file,
``crc32``, is a checksum of the line before it, since a damaged digit is still a number. A line that does not fit is
kept in the file, passed over when reading, and reported with its number and the reason.
"""

from __future__ import annotations

import io
import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from tileseer.benchmark.claim import Claim
from tileseer.conv.problem import DIMS
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError

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
_BLOCK = 1 << 21
"""Bytes of a journal that are read together."""


@dataclass(frozen=True)
class Malformed:
    """A line that is no measurement: its journal, number in the file (the header is 1), the reason, and its text."""

    journal: str
    line: int
    reason: str
    text: str


class Journal:
    """A journal file, open for appending by this process alone (``tileseer.benchmark.claim``)."""

    def __init__(self, path: Path, timeout_s: float = 0.0) -> None:
        """Open ``path`` and make it, if need be; wait for another writer up to ``timeout_s``."""
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
        size = os.fstat(self._file).st_size
        if os.pread(self._file, 1, size - 1) != b"\n":
            # A writer died in mid-line: close the line, so that the next measurement starts on its own.
            self._write(b"\n")

    def append(self, rows: pa.Table) -> None:
        """Write rows (``SCHEMA``) and wait until they are on the disk; ``UserError`` if another process took over."""
        self._claim.check()
        text = io.BytesIO()
        pa_csv.write_csv(rows.cast(SCHEMA), text, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
        self._write(b"".join(_with_checksum(line) for line in text.getvalue().splitlines()))

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
    return line + b"\n" == _with_checksum(line.rpartition(b",")[0])


def check_header(path: Path) -> None:
    """Raise a ``UserError`` if the header is not that of a journal, since nothing in the file can be trusted then."""
    with path.open("rb") as stream:
        found = stream.readline().decode(errors="replace").rstrip("\r\n")
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
        while lines := stream.readlines(_BLOCK):
            yield _parsed(path, lines, first)
            first += len(lines)


def read_lines(path: Path, places: Sequence[tuple[int, int]]) -> pa.Table:
    """Measurements of some lines of a journal, given as first byte and the one after the last."""
    check_header(path)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return _parsed(path, [text[begin:end] for begin, end in places], 0)[0]


def _parsed(path: Path, lines: Sequence[bytes], first: int) -> tuple[pa.Table, list[Malformed]]:
    """Measurements among ``lines``, and the others; the number of the first line is ``first``."""
    whole, malformed = [], []
    for number, line in enumerate((line.rstrip(b"\r\n") for line in lines), first):
        if fault := _fault(line):
            text = line.decode("ascii", "backslashreplace")[:500]
            malformed.append(Malformed(path.as_posix(), number, fault, text))
        else:
            whole.append(line)
    if not whole:
        return SCHEMA.empty_table(), malformed
    # A null is an empty field of a number; text is as it stands.
    rows = pa_csv.read_csv(
        pa.BufferReader(b"\n".join(whole)),
        pa_csv.ReadOptions(column_names=HEADER.split(","), use_threads=False),
        pa_csv.ParseOptions(quote_char=False),
        pa_csv.ConvertOptions(column_types=SCHEMA, include_columns=COLUMNS, null_values=[""]),
    )
    return rows, malformed


def _fault(line: bytes) -> str:
    """Why a line is no measurement; empty if it is one."""
    if not line:
        return "an empty line"
    fields, columns = line.count(b",") + 1, len(COLUMNS) + 1
    if fields != columns:
        return f"{fields} fields instead of {columns}"
    return "" if is_whole(line) else "the line was damaged"
