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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
"""Journals of releases that wrote no checksum, then no sentinel; who opens one for appending adds what is missing."""
_INTS = frozenset(("problem_idx", *DIMS, "non_zero", "samples", "split_k", "seed"))
_FLOATS = frozenset(("latency_ms", "tflops", "latency_cv", "sentinel"))
_MAY_BE_EMPTY = frozenset(("non_zero", "error", *_FLOATS))
_PATTERNS = {
    "kernel": r"^\w+$",
    "kernel_id": r"^[0-9a-f]{16}$",
    "problem_key": r"^[0-9a-f]{16}$",
    "measurement_id": r"^[0-9a-f]{16}$",
}


def _type(column: str) -> pa.DataType:
    if column in _INTS:
        return pa.int64()
    return pa.float64() if column in _FLOATS else pa.string()


SCHEMA = pa.schema([(column, _type(column)) for column in COLUMNS])


@dataclass(frozen=True)
class Malformed:
    """A line that is no measurement: its number in the file (the header is 1), why, and its text."""

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
        """Write rows (``SCHEMA``) and wait until they are on the disk; who lost the journal gets a ``UserError``."""
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
    """Return whether a line of a journal, without its end, is as it was written."""
    return line + b"\n" == _with_checksum(line.rpartition(b",")[0])


def header(path: Path) -> str:
    """Return the header of a journal; a ``UserError`` if it is none of ours: nothing in the file can be trusted."""
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

    lines = path.read_bytes().splitlines()[1:]
    write_bytes(path, b"".join((f"{HEADER}\n".encode(), *map(present, lines))))


def _with_checksum(line: bytes) -> bytes:
    return b"%s,%08x\n" % (line, zlib.crc32(line))


def read(path: Path) -> tuple[pa.Table, list[Malformed]]:
    """Return the measurements of a journal in file order, and the lines that are none.

    A file whose header is not ours is a ``UserError``: nothing in it can be trusted.
    """
    parts, malformed = [SCHEMA.empty_table()], []
    for rows, lines in batches(path):
        parts.append(rows)
        malformed += lines
    return pa.concat_tables(parts).combine_chunks(), malformed


def batches(path: Path) -> Iterator[tuple[pa.Table, list[Malformed]]]:
    """Yield what ``read`` returns piece by piece: memory for the text of a few thousand lines is enough."""
    columns = header(path).split(",")
    skipped: list[Malformed] = []

    def keep(row: pa_csv.InvalidRow) -> str:
        reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
        skipped.append(Malformed(row.number, reason, _printable(row.text)))
        return "skip"

    first = 2
    # One thread: only then does the reader know the line numbers of what it skips.
    for text in _pieces(path, columns, keep):
        # The reader may be ahead: it has skipped every bad line before the last of this piece, perhaps later ones too.
        taken = np.arange(first, first + text.num_rows + len(skipped))
        lines = np.setdiff1d(taken, [m.line for m in skipped])[: text.num_rows]
        last = int(lines[-1]) if len(lines) else first - 1
        malformed = [m for m in skipped if m.line < last]
        skipped[:] = [m for m in skipped if m.line > last]
        first = last + 1
        good, faults = _typed(text)
        for row, reason in faults.items():
            line = _lines(text.slice(row, 1))[0].as_py()
            # The reader gives an empty line as a row of empty fields.
            empty = not line.strip(",")
            malformed.append(
                Malformed(int(lines[row]), "an empty line" if empty else reason, "" if empty else _printable(line))
            )
        yield good, sorted(malformed, key=lambda m: m.line)
    if skipped:
        yield SCHEMA.empty_table(), sorted(skipped, key=lambda m: m.line)


def _pieces(
    source: Path | pa.BufferReader, columns: Sequence[str], on_invalid: Callable[[pa_csv.InvalidRow], str]
) -> Iterator[pa.Table]:
    with pa_csv.open_csv(source, **_options(columns, on_invalid)) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def read_lines(path: Path, lines: Sequence[tuple[int, int]]) -> pa.Table:
    """Return the measurements of some lines of a journal, given as first byte and the one after the last."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        first = text.readline()
        taken = first + b"".join(text[begin:end] for begin, end in lines)
    columns = first.decode().rstrip("\r\n").split(",")
    parts = [_typed(piece)[0] for piece in _pieces(pa.BufferReader(taken), columns, lambda row: "skip")]
    return pa.concat_tables([SCHEMA.empty_table(), *parts])


def _options(columns: Sequence[str], on_invalid: Callable[[pa_csv.InvalidRow], str]) -> dict[str, Any]:
    return {
        "read_options": pa_csv.ReadOptions(use_threads=False, encoding="latin-1"),
        "parse_options": pa_csv.ParseOptions(
            quote_char=False, invalid_row_handler=on_invalid, ignore_empty_lines=False
        ),
        "convert_options": pa_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=list(columns),
            include_missing_columns=True,
        ),
    }


def _lines(text: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(text[column] for column in text.column_names), ",")


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()[:500]


def _typed(text: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return the typed rows that fit, and for each row that does not, the first reason."""
    faults: dict[int, str] = {}
    given = text.column_names
    for column in COLUMNS:
        if column not in given:
            text = text.append_column(column, pa.repeat("", text.num_rows))

    def refuse(column: str, bad: pa.ChunkedArray | pa.Array, what: str) -> None:
        for row in np.flatnonzero(np.asarray(bad.combine_chunks() if isinstance(bad, pa.ChunkedArray) else bad)):
            value = text[column][int(row)].as_py()
            faults.setdefault(int(row), f"{column} is {_printable(value)!r}; {what}")

    for column in COLUMNS:
        values = text[column]
        empty = pc.equal(values, "")
        if column in _INTS:
            fits, what = pc.match_substring_regex(values, r"^-?\d{1,18}$"), "it must be a whole number"
        elif column in _FLOATS:
            fits = pc.match_substring_regex(values, r"^\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?$")
            what = "it must be a number, not negative"
        elif column in _PATTERNS:
            fits, what = pc.match_substring_regex(values, _PATTERNS[column]), f"it must match {_PATTERNS[column]}"
        elif column in ("status", "device_kind"):
            known = STATUSES if column == "status" else DEVICE_KINDS
            fits, what = pc.is_in(values, pa.array(known)), f"it must be one of {', '.join(known)}"
        else:
            fits, what = pc.true_unless_null(values), ""
        allowed = pc.or_(fits, empty) if column in _MAY_BE_EMPTY else fits
        refuse(column, pc.invert(allowed), what)
    ok = pc.equal(text["status"], "ok")
    for column in ("latency_ms", "tflops"):
        refuse(column, pc.xor(ok, pc.not_equal(text[column], "")), "exactly the ok rows have one")
    if CHECKSUM in given:
        # Last: what is wrong with a field says more.
        whole = [is_whole(line.encode("latin-1")) for line in _lines(text.select(given)).to_pylist()]
        refuse(CHECKSUM, pc.invert(pa.array(whole, pa.bool_())), "the line was damaged")
    mask = np.ones(text.num_rows, bool)
    mask[list(faults)] = False
    rows = text.filter(pa.array(mask))
    typed = [_cast(rows[column], column) for column in COLUMNS]
    return pa.table(typed, schema=SCHEMA), faults


def _cast(values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    if column not in _INTS | _FLOATS:
        return values
    return pc.if_else(pc.equal(values, ""), None, values).cast(_type(column))
