"""Measurements in the journals of other chunks: taken over after kernels were dealt to chunks anew.

A journal has an index in a file beside it: the lines of each kernel. So it is read once, not once a chunk.
The first line has the size and time of the journal and a checksum of the rest; then come each kernel with the number of
its lines, and where these begin and end. An index that does not fit its journal is made anew.
"""

import zlib
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark import journal, receipt
from tileseer.core.atomic import write_bytes

_ID = 16
_KERNEL = np.dtype([("kernel", f"S{_ID}"), ("lines", "<i8")])
_LINE = np.dtype([("begin", "<i8"), ("end", "<i8")])
_COMMAS = journal.COLUMNS.index("kernel_id")


def from_neighbours(own: Path, missing: pa.Table, measurement_id: str) -> pa.Table:
    """Rows for ``missing`` pairs (columns ``receipt.IDENTITY``) in the other journals of the folder of ``own``.

    Of each journal only the lines about their kernels are read.
    """
    kernels = np.array(pc.unique(missing["kernel_id"].cast(pa.string())).to_pylist(), dtype="S")
    found = [journal.SCHEMA.empty_table()]
    for path in sorted(own.parent.glob("*.csv")):
        if path != own and len(lines := of(path).of(kernels)):
            found.append(journal.read_lines(path, lines.tolist()))
    return receipt.counted(pa.concat_tables(found), measurement_id, missing)


@dataclass(frozen=True)
class Index:
    """The lines of a journal: ``kernels`` in order, each with the count of its ``lines``, which follow each other."""

    kernels: np.ndarray
    lines: np.ndarray

    def of(self, wanted: np.ndarray) -> np.ndarray:
        """Begin and end of the lines about ``wanted`` kernels (16 bytes each); those of one in file order."""
        return self.lines[np.repeat(np.isin(self.kernels["kernel"], wanted), self.kernels["lines"])]


def of(path: Path) -> Index:
    """Index of a journal, made if there is none that fits; ``UserError`` if the file is no journal."""
    beside = path.with_name(f".{path.name}.index")
    stat = path.stat()
    state = f"{stat.st_size} {stat.st_mtime_ns}"
    if (kept := _read(beside, state)) is not None:
        return kept
    made = build(path, stat.st_size)
    count = np.array([len(made.kernels)], "<i8").tobytes()
    body = count + made.kernels.tobytes() + made.lines.tobytes()
    write_bytes(beside, f"{state} {zlib.crc32(body):08x}\n".encode() + body)
    return made


def _read(path: Path, state: str) -> Index | None:
    """Index that was written for a journal of this size and time, if it is there and whole."""
    try:
        first, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if first != f"{state} {zlib.crc32(body):08x}".encode():
        return None
    count = int(np.frombuffer(body, "<i8", 1)[0])
    after = 8 + count * _KERNEL.itemsize
    return Index(np.frombuffer(body[8:after], _KERNEL), np.frombuffer(body[after:], _LINE))


def build(path: Path, size: int) -> Index:
    """Index of the first ``size`` bytes of a journal; lines without a kernel, or without an end, are left out."""
    journal.check_header(path)
    found, places = bytearray(), array("q")
    with path.open("rb") as stream:
        end = len(stream.readline())
        for line in stream:
            begin, end = end, end + len(line)
            fields = line.split(b",", _COMMAS + 1)
            if len(fields) > _COMMAS + 1 and len(fields[_COMMAS]) == _ID and line.endswith(b"\n") and end <= size:
                found += fields[_COMMAS]
                places.extend((begin, end))
    kernel = np.frombuffer(found, f"S{_ID}")
    names, counts = np.unique(kernel, return_counts=True)
    kernels = np.empty(len(names), _KERNEL)
    kernels["kernel"], kernels["lines"] = names, counts
    return Index(kernels, np.frombuffer(places, _LINE)[np.argsort(kernel, kind="stable")])
