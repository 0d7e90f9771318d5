"""Rows that do not fit into memory: dealt to parts, which wait in files without names until each is read."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa


class Spill:
    """Rows of one schema in numbered parts."""

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
