"""Parts of a chunk, of a few kernels each, so that the memory does not depend on the size of a chunk.

The pairs of a part are those of the support table, its measurements the rows of the journal about its kernels. The
journal is read once; the rows of each part wait in a file of their own.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BASE_MIB = 256
"""Python, its libraries, and what there is of every chunk."""
PAIR_BYTES = 2048
"""Memory of a pair while its part is put together; benchmarks/scale.py has measured 1.7 KB."""
ROW_BYTES = 4096
"""Memory of a pair that is taken over from another journal; benchmarks/benchmark_stage.py has measured 2.6 KB."""


def pairs_at_once(memory_mib: int, pair_bytes: int = PAIR_BYTES) -> int:
    """Pairs of a part with which a stage takes at most ``memory_mib``."""
    return max(1, ((memory_mib - BASE_MIB) << 20) // pair_bytes)


class Spill:
    """Rows of one schema in numbered parts, which wait in files without names until each is read."""

    def __init__(self, parts: int, schema: pa.Schema, folder: Path) -> None:
        self._files = [tempfile.TemporaryFile(dir=folder) for _ in range(parts)]  # noqa: SIM115
        self._writers = [pa.ipc.new_stream(file, schema) for file in self._files]

    def add(self, rows: pa.Table, part: np.ndarray) -> None:
        """Append each row to its part, int [n]; -1 drops it."""
        for number in np.unique(part[part >= 0]):
            self._writers[number].write_table(rows.filter(pa.array(part == number)))

    def read(self, part: int) -> pa.Table:
        """Rows of a part in the order in which they were added, once."""
        self._writers[part].close()
        with self._files[part] as file:
            file.seek(0)
            return pa.ipc.open_stream(file).read_all()


def parts(
    pairs: pa.Table, measured: Iterator[pa.Table], most_pairs: int, folder: Path
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield pairs and measurements of some kernels at a time, in the order of the kernel ids.

    A part has at most ``most_pairs`` pairs, or one kernel. ``pairs`` are the rows of a support table, ``measured``
    those of its journal, piece by piece, first of all none; both keep their order.
    """
    ids, part_of = _dealt(pairs["kernel_id"].cast(pa.string()).combine_chunks(), most_pairs)
    count = int(part_of.max(initial=-1)) + 1
    if count <= 1:
        yield pairs, pa.concat_tables(measured)
        return
    empty = next(measured)
    spill = Spill(count, empty.schema, folder)
    for rows in measured:
        spill.add(rows, _parts_of(rows, ids, part_of))
    of_pair = _parts_of(pairs, ids, part_of)
    for part in range(count):
        yield pairs.filter(pa.array(of_pair == part)), spill.read(part)


def _dealt(kernel_ids: pa.Array, most_pairs: int) -> tuple[pa.Array, np.ndarray]:
    """Distinct kernel ids in order, and the part of each."""
    counts = pc.value_counts(kernel_ids)
    order = pc.sort_indices(counts.field("values"))
    part_of = np.zeros(len(order), np.int64)
    part = filled = 0
    for index, pairs in enumerate(counts.field("counts").take(order).to_pylist()):
        if filled and filled + pairs > most_pairs:
            part, filled = part + 1, 0
        part_of[index] = part
        filled += pairs
    return counts.field("values").take(order), part_of


def _parts_of(rows: pa.Table, ids: pa.Array, part_of: np.ndarray) -> np.ndarray:
    """Part of each row; -1 for a kernel that the chunk does not have."""
    found = pc.index_in(rows["kernel_id"].cast(pa.string()).combine_chunks(), value_set=ids)
    number = pc.fill_null(found, len(ids)).to_numpy(zero_copy_only=False)
    return np.append(part_of, -1)[number]
