"""The measurement journal: an append-only CSV. What is in it was measured and is never measured again.

The first 24 columns are those of the reference's benchmark CSV, in its order; ours follow. The last one in the file,
``crc32``, is a checksum of the line before it, since a damaged digit is still a number. A line that does not fit is
kept in the file, passed over when reading, and reported with its number and the reason.
"""

from __future__ import annotations

import functools
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.measure.claim import Claim
from tileseer.measure.device import SLOWEST_MS, STATUSES
from tileseer.problems.problem import DIMS

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

MALFORMED = pa.schema([("journal", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])
"""A line that is no measurement: its journal, number in the file (the header is 1), the reason, and its beginning."""
LONGEST_SHOWN = 500
_REASONS = (
    "", "an empty line", "longer than any row", "its checksum does not fit", "other fields than those of a row",
    "no such status, or no such time",
)  # fmt: skip
_EMPTY, _TOO_LONG, _DAMAGED, _OTHER_FIELDS, _IMPOSSIBLE = range(1, len(_REASONS))


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
    """A journal file, open for appending by this process alone (``tileseer.measure.claim``)."""

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
        lines = [b"%s,%08x\n" % (line, zlib.crc32(line)) for line in text.getvalue().splitlines()]
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
        header = stream.readline(len(HEADER) + 2).decode(errors="replace").rstrip("\r\n")
    if header != HEADER:
        raise UserError(
            f"{path}: line 1: the columns are not those of a journal; "
            "move the file away, and its pairs are measured again"
        )


def read_journal(path: Path) -> tuple[pa.Table, pa.Table]:
    """Measurements of a journal in file order, and its malformed lines; ``UserError`` if it is no journal."""
    parts = [(SCHEMA.empty_table(), MALFORMED.empty_table()), *read_blocks(path)]
    rows, malformed = (pa.concat_tables(tables) for tables in zip(*parts, strict=True))
    return rows.combine_chunks(), malformed


def read_device_rows(
    path: Path, by: MeasuredBy, columns: Sequence[str] = COLUMNS, kernel_ids: pa.Array | None = None
) -> tuple[pa.Table, pa.Table]:
    """Some columns of what one device has measured, of some kernels or all; and the malformed lines."""
    parts = [(SCHEMA.empty_table().select(columns), MALFORMED.empty_table())]
    for rows, malformed in read_blocks(path):
        if kernel_ids is not None:
            rows = rows.filter(pc.is_in(rows["kernel_id"], value_set=kernel_ids))
        parts.append((by.rows(rows).select(columns), malformed))
    rows, malformed = (pa.concat_tables(tables) for tables in zip(*parts, strict=True))
    return rows, malformed


def read_blocks(path: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    """What ``read_journal`` returns, some thousand lines at a time."""
    check_header(path)
    with path.open("rb") as stream:
        stream.readline()
        first = 2
        for lines in _lines(stream):
            yield _parsed(path, lines, first)
            first += len(lines)


def _lines(stream: BinaryIO) -> Iterator[pa.Array]:
    """Lines without their ends, some at a time; the memory does not depend on how long a line is."""
    rest = b""
    while block := stream.read(BLOCK):
        whole, end, rest = (rest + block).rpartition(b"\n")
        rest = rest[:BLOCK]
        if end:
            yield _texts([whole])
    if rest:
        yield _texts([rest])


def _texts(texts: Sequence[bytes]) -> pa.Array:
    """Lines of some texts. Arrow splits strings alone, and does not ask here whether they are UTF-8."""
    return pc.ascii_rtrim(pc.split_pattern(pa.array(texts, pa.binary()).view(pa.string()), "\n").flatten(), "\r")


def _parsed(path: Path, lines: pa.Array, first: int) -> tuple[pa.Table, pa.Table]:
    """Measurements among ``lines``, and the others; the number of the first line is ``first``."""
    faults = _faults(lines)
    whole = np.flatnonzero(faults == 0)
    try:
        rows = _table(lines.take(whole))
    except pa.ArrowInvalid:
        # Rare: a line with a checksum that fits and a value that does not.
        faults[whole[_of_other_types(lines.take(whole))]] = _OTHER_FIELDS
        whole = np.flatnonzero(faults == 0)
        rows = _table(lines.take(whole))
    sound = _are_possible(rows)
    faults[whole[~sound]] = _IMPOSSIBLE
    wrong = np.flatnonzero(faults)
    reasons = pa.array(_REASONS).take(pa.array(faults[wrong]))
    columns = [pa.repeat(path.as_posix(), len(wrong)), first + wrong, reasons, _shown(lines.take(wrong))]
    return rows.filter(pa.array(sound)), pa.table(columns, MALFORMED.names)


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


def _of_other_types(lines: pa.Array) -> list[int]:
    """Places of the lines that are no rows of the schema."""
    try:
        if _table(lines).num_rows == len(lines):
            return []
    except pa.ArrowInvalid:
        pass
    if len(lines) == 1:
        return [0]
    half = len(lines) // 2
    return [*_of_other_types(lines[:half]), *(half + place for place in _of_other_types(lines[half:]))]


def _are_possible(rows: pa.Table) -> np.ndarray:
    """Which rows a device can have given, bool [n]: a status that there is, and with ``ok`` a time and a speed."""
    status, samples = rows["status"].to_numpy(), rows["samples"].to_pandas()
    time, speed = rows["latency_ms"].to_numpy(), rows["tflops"].to_numpy()
    timed = (time > 0) & (time < SLOWEST_MS) & (speed > 0) & (speed < np.inf)
    known = np.asarray(pc.is_in(rows["status"], pa.array(STATUSES))) & samples.between(0, 2**31 - 1).to_numpy()
    return known & (timed | (status != "ok"))


def _faults(lines: pa.Array) -> np.ndarray:
    """Place in ``_REASONS`` of why each line is no measurement, int [n]; 0 if it may be one."""
    size = np.asarray(pc.binary_length(lines))
    faults = np.select([size == 0, size >= BLOCK], [_EMPTY, _TOO_LONG], 0)
    candidates = np.flatnonzero(faults == 0)
    whole = [is_whole(line) for line in lines.take(candidates).view(pa.binary()).to_pylist()]
    faults[candidates] = np.where(whole, 0, _DAMAGED)
    return faults


def _shown(lines: pa.Array) -> pa.Array:
    """The beginning of each line as a terminal may get it."""
    short = pc.binary_slice(lines.view(pa.binary()), 0, LONGEST_SHOWN)
    plain = pc.ascii_is_printable(short.view(pa.string()))
    others = short.filter(pc.invert(plain)).to_pylist()
    escaped = pa.array([line.decode("latin1").encode("unicode_escape").decode() for line in others], pa.string())
    return pc.replace_with_mask(short.view(pa.string()), pc.invert(plain), escaped)
