"""Measurements in the journals of other chunks: taken over after kernels were dealt to chunks anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewright.bench import journal, receipt


def from_neighbours(own: Path, missing: pa.Table, measurement_id: str) -> pa.Table:
    """Return rows for ``missing`` pairs out of the other journals of the folder of ``own``.

    ``missing`` has the columns ``receipt.IDENTITY``. A journal is read whole only if it knows one of the kernels.
    """
    found = journal.SCHEMA.empty_table()
    kernels = pc.unique(missing["kernel_id"].cast(pa.string()).combine_chunks())
    for path in sorted(own.parent.glob("*.csv")):
        if path != own and pc.any(pc.is_in(kernels, journal.kernel_ids(path))).as_py():
            rows = receipt.counted(journal.read(path)[0], measurement_id, missing)
            found = pa.concat_tables([found, rows])
    return receipt.counted(found, measurement_id, missing)
