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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tileseer.benchmark.claim import Claim
from tileseer.conv.problem import DIMS
from tileseer.core.atomic import write_bytes, write_text
from tileseer.core.errors import UserError
from tileseer.devices.base import DEVICE_KINDS, STATUSES

REFERENCE_COLUMNS = ("kernel", "problem_idx", *DIMS, "latency_ms", "tflops", "non_zero")
OWN_COLUMNS = (
    "status", "error", "samples", "latency_cv", "split_k", "kernel_id", "problem_key", "arch", "device",
    "device_kind", "seed", "measurement_id", "sentinel",
)  # fmt: skip
COLUMNS = (*REFERENCE_COLUMNS, *OWN_COLUMNS)
CHECKSUM = "crc32"
HEADER = ",".join((*COLUMNS, CHECKSUM))
_BEFORE = COLUMNS[: COLUMNS.index("sentinel")]
EARLIER_HEADERS = (",".join(_BEFORE), ",".join((*_BEFORE, CHECKSUM)))
"""Journals of releases that wrote no checksum, then no sentinel; opening one for appending adds what is missing."""
_INTS = ("problem_idx", *DIMS, "non_zero", "samples", "split_k", "seed")
_FLOATS = ("latency_ms", "tflops", "latency_cv", "sentinel")
_MAY_BE_EMPTY = ("non_zero", "error", *_FLOATS)
_TYPES = dict.fromkeys(_INTS, pa.int64()) | dict.fromkeys(_FLOATS, pa.float64())
SCHEMA = pa.schema([(column, _TYPES.get(column, pa.string())) for column in COLUMNS])
_DIGEST = r"[0-9a-f]{16}"
_PATTERNS = {
    **dict.fromkeys(_INTS, (r"-?\d{1,18}", "a whole number")),
    **dict.fromkeys(_FLOATS, (r"\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?", "a number, not negative")),
    **dict.fromkeys(("kernel_id", "problem_key", "measurement_id"), (_DIGEST, "16 hexadecimal digits")),
    "kernel": (r"\w+", "a name"),
    "status": ("|".join(STATUSES), f"one of {', '.join(STATUSES)}"),
    "device_kind": ("|".join(DEVICE_KINDS), f"one of {', '.join(DEVICE_KINDS)}"),
}
"""Of the columns that have one form: its regular expression, and what a message calls it."""
_BLOCK = 1 << 21
"""Bytes of a journal that are read together."""


@dataclass(frozen=True)
class Malformed:
    """A line that is no measurement: its number in the file (the header is 1), the reason, and its text."""

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
        elif (found := header(path)) in EARLIER_HEADERS:
            _bring_up_to_date(path, found.split(","))
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


def header(path: Path) -> str:
    """Header of a journal; ``UserError`` if it is none of Tileseer's, since nothing in the file can be trusted then."""
    with path.open("rb") as stream:
        found = stream.readline().decode(errors="replace").rstrip("\r\n")
    if found not in (HEADER, *EARLIER_HEADERS):
        raise UserError(
            f"{path}: line 1: the columns are not those of a journal; "
            "move the file away, and its pairs are measured again"
        )
    return found


def _bring_up_to_date(path: Path, columns: Sequence[str]) -> None:
    """Bring a journal with other ``columns`` to the present form; lines that are no measurement stay as they are."""
    checked = columns[-1] == CHECKSUM

    def present(line: bytes) -> bytes:
        if line.count(b",") != len(columns) - 1 or (checked and not is_whole(line)):
            return line + b"\n"
        return _with_checksum((line.rpartition(b",")[0] if checked else line) + b",")

    with path.open("rb") as stream:
        lines = [line.rstrip(b"\r\n") for line in stream.readlines()[1:]]
    write_bytes(path, b"".join((f"{HEADER}\n".encode(), *map(present, lines))))


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
    columns = header(path).split(",")
    with path.open("rb") as stream:
        stream.readline()
        first = 2
        while lines := stream.readlines(_BLOCK):
            yield _parsed(lines, first, columns)
            first += len(lines)


def read_lines(path: Path, places: Sequence[tuple[int, int]]) -> pa.Table:
    """Measurements of some lines of a journal, given as first byte and the one after the last."""
    columns = header(path).split(",")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return _parsed([text[begin:end] for begin, end in places], 0, columns)[0]


def _parsed(lines: Sequence[bytes], first: int, columns: Sequence[str]) -> tuple[pa.Table, list[Malformed]]:
    """Measurements among ``lines``, and the others; the number of the first line is ``first``."""
    lines = [line.rstrip(b"\r\n") for line in lines]
    faults = {place: fault for place, line in enumerate(lines) if (fault := _misshapen(line, len(columns)))}
    places = [place for place in range(len(lines)) if place not in faults]
    rows = SCHEMA.empty_table()
    if places:
        shaped = [lines[place] for place in places]
        text = _fields(shaped, columns)
        wrong = _wrong_fields(text)
        if CHECKSUM in columns:
            # Last: what is wrong with a field says more.
            damaged = {row: "the line was damaged" for row, line in enumerate(shaped) if not is_whole(line)}
            wrong = damaged | wrong
        faults |= {places[row]: reason for row, reason in wrong.items()}
        keep = np.ones(len(places), bool)
        keep[list(wrong)] = False
        rows = _typed(text.filter(pa.array(keep)))
    return rows, [Malformed(first + place, faults[place], _printable(lines[place])) for place in sorted(faults)]


def _misshapen(line: bytes, columns: int) -> str:
    """Fault in the form of a line; empty if it may be a row."""
    if not line:
        return "an empty line"
    fields = line.count(b",") + 1
    if fields != columns:
        return f"{fields} fields instead of {columns}"
    return "a line end within the line" if b"\r" in line else ""


def _fields(lines: Sequence[bytes], columns: Sequence[str]) -> pa.Table:
    """Fields of lines of the right form as text; columns that the journal lacks are empty."""
    text = pa_csv.read_csv(
        pa.BufferReader(b"\n".join(lines) + b"\n"),
        pa_csv.ReadOptions(column_names=columns, encoding="latin-1", use_threads=False),
        pa_csv.ParseOptions(quote_char=False),
        pa_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
    )
    for column in COLUMNS:
        if column not in columns:
            text = text.append_column(column, pa.repeat("", text.num_rows))
    return text


def _wrong_fields(text: pa.Table) -> dict[int, str]:
    """First fault of each row that has one."""
    faults: dict[int, str] = {}

    def refuse(column: str, bad: pa.ChunkedArray, what: str) -> None:
        for row in np.flatnonzero(bad.to_numpy()).tolist():
            faults.setdefault(row, f"{column} is {_printable(text[column][row].as_py().encode('latin-1'))!r}; {what}")

    for column, (pattern, what) in ((name, _PATTERNS[name]) for name in COLUMNS if name in _PATTERNS):
        allowed = f"^({pattern}){'?' if column in _MAY_BE_EMPTY else ''}$"
        refuse(column, pc.invert(pc.match_substring_regex(text[column], allowed)), f"it must be {what}")
    ok = pc.equal(text["status"], "ok")
    for column in ("latency_ms", "tflops"):
        refuse(column, pc.xor(ok, pc.not_equal(text[column], "")), "exactly the ok rows have one")
    return faults


def _typed(text: pa.Table) -> pa.Table:
    def column(name: str) -> pa.ChunkedArray:
        values = text[name]
        return values if name not in _TYPES else pc.if_else(pc.equal(values, ""), None, values).cast(_TYPES[name])

    return pa.table([column(name) for name in COLUMNS], schema=SCHEMA)


def _printable(line: bytes) -> str:
    return line.decode("ascii", "backslashreplace")[:500]
