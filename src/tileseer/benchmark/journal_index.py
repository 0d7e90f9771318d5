"""Measurements in the journals of other chunks: taken over after kernels were dealt to chunks anew.

A journal has an index in a file beside it: the lines of each kernel. So it is read once, not once a chunk. The
first line of an index has the size and time of the journal and a checksum of the rest; one that does not fit is made
anew.
"""

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark import journal, receipt
from tileseer.core.atomic import write_bytes

_ID = 16
_LINE = np.dtype([("kernel", f"S{_ID}"), ("begin", "<i8"), ("end", "<i8")])
_COMMAS = journal.COLUMNS.index("kernel_id")


def from_neighbours(own: Path, missing: pa.Table, by: journal.MeasuredBy) -> pa.Table:
    """Rows for ``missing`` pairs (columns ``pairs.IDENTITY``) in the other journals of the folder of ``own``.

    Of each journal only the lines about their kernels are read.
    """
    kernels = np.array(pc.unique(missing["kernel_id"].cast(pa.string())).to_pylist(), dtype="S")
    found = [journal.SCHEMA.empty_table()]
    for path in sorted(own.parent.glob("*.csv")):
        if path != own and len(lines := of(path, kernels)):
            found.append(journal.read_lines(path, lines.tolist()))
    return receipt.counted(by.rows(pa.concat_tables(found)), missing)


def of(path: Path, kernels: np.ndarray) -> np.ndarray:
    """Begin and end of the lines about ``kernels`` (16 bytes each); those of one in file order.

    The index is made if there is none that fits; ``UserError`` if the file is no journal.
    """
    beside = path.with_name(f".{path.name}.index")
    stat = path.stat()
    first, _, body = beside.read_bytes().partition(b"\n") if beside.exists() else (b"", b"", b"")
    state = f"{stat.st_size} {stat.st_mtime_ns}"
    if first != f"{state} {zlib.crc32(body):08x}".encode():
        body = build(path, stat.st_size).tobytes()
        write_bytes(beside, f"{state} {zlib.crc32(body):08x}\n".encode() + body)
    lines = np.frombuffer(body, _LINE)
    begins, ends = (np.searchsorted(lines["kernel"], kernels, side) for side in ("left", "right"))
    return np.concatenate([lines[:0], *(lines[a:b] for a, b in zip(begins, ends, strict=True))])[["begin", "end"]]


def build(path: Path, size: int) -> np.ndarray:
    """Lines of the first ``size`` bytes of a journal by kernel, less those without a kernel or without an end."""
    journal.check_header(path)
    found = []
    with path.open("rb") as stream:
        end = len(stream.readline())
        # A line that is too long comes in pieces, none of which is a row.
        for line in iter(lambda: stream.readline(journal.BLOCK), b""):
            begin, end = end, end + len(line)
            fields = line.split(b",", _COMMAS + 1)
            if len(fields) > _COMMAS + 1 and len(fields[_COMMAS]) == _ID and line.endswith(b"\n") and end <= size:
                found.append((fields[_COMMAS], begin, end))
    lines = np.array(found, _LINE)
    return lines[np.argsort(lines["kernel"], kind="stable")]
