"""Measurements in the journals of other chunks: taken over after kernels were dealt to chunks anew."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark import journal, journal_index, receipt


def from_neighbours(own: Path, missing: pa.Table, measurement_id: str) -> pa.Table:
    """Rows for ``missing`` pairs (columns ``receipt.IDENTITY``) in the other journals of the folder of ``own``.

    Of each journal only the lines about their kernels are read.
    """
    kernels = np.array(pc.unique(missing["kernel_id"].cast(pa.string())).to_pylist(), dtype="S")
    found = [journal.SCHEMA.empty_table()]
    for path in sorted(own.parent.glob("*.csv")):
        if path != own and len(lines := journal_index.of(path).of(kernels)):
            found.append(journal.read_lines(path, lines.tolist()))
    return receipt.counted(pa.concat_tables(found), measurement_id, missing)
