"""The receipt of a benchmarked chunk: which measurements of the journal count, and a digest of them.

The journal grows and is never a job's output; the receipt is. It is a function of what counts in the journal, so a
resumed or extended run ends with the receipt of an undisturbed one, but for lines that an interruption tore.
"""

import hashlib
import io
from collections import Counter
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from pydantic import Field

from tileseer.core.documents import Document, read_json
from tileseer.core.strict_tables import validate_table
from tileseer.measure.journal import IDENTITY, MeasuredBy, pair_text

PASSING = ("throttled", "contended")
COUNTED_COLUMNS = (*IDENTITY, "status", "error", "latency_ms", "tflops", "non_zero", "samples", "latency_cv")


class Receipt(Document):
    """What the benchmark stage vouches for."""

    arch: str
    operation: str
    chunk: int
    device: str
    device_kind: str
    measurement_id: str
    journal: str
    pairs: int
    by_status: dict[str, int]
    malformed_lines: int
    rows_sha256: str
    skipped: int = 0
    """Pairs without a measurement, because a budget was spent."""
    again: int = 0
    """Rows of the journal of repeat measurements that count."""
    again_sha256: str = ""
    """Their digest."""
    differences: list[float] = Field([])
    """Logarithm of the repeated time over the first one, of the pairs that were drawn to be repeated."""

    @property
    def measured_by(self) -> MeasuredBy:
        """Whose rows it is about."""
        return MeasuredBy(self.arch, self.device, self.device_kind, self.measurement_id)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a receipt; a damaged one is a ``UserError``."""
        return validate_table(read_json(path), cls, f"{path}: this is no receipt; delete it and run again")


def counted(mine: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return the rows of ``pairs``, one per pair, in the order of ``pairs``, among those of this device in a journal.

    It is the first row of the pair, but one of passing trouble only if there is no other.
    Rows of other pairs, kernels, devices or settings stay in the journal and do not count.
    """
    # A second try counts, wherever it stands.
    mine = pa.concat_tables([mine.filter(pc.invert(passing(mine))), mine.filter(passing(mine))])
    index = pc.index_in(pair_text(pairs), value_set=pair_text(mine).combine_chunks())
    return mine.take(index.drop_null())


def passing(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows tell of a state of the device that may pass: the next run measures such pairs again."""
    return pc.is_in(rows["status"], pa.array(PASSING))


def digest_rows(rows: pa.Table) -> str:
    """Return the SHA-256 of the rows' measurements as text; it does not depend on their order."""
    ordered = rows.select(COUNTED_COLUMNS).sort_by([(column, "ascending") for column in IDENTITY])
    text = io.BytesIO()
    pa_csv.write_csv(ordered, text, pa_csv.WriteOptions(quoting_style="none"))
    return hashlib.sha256(text.getvalue()).hexdigest()


def summarize_rows(rows: pa.Table) -> dict[str, Any]:
    """Return what a receipt says of the rows that count: the fields ``pairs``, ``by_status`` and ``rows_sha256``."""
    by_status = dict(sorted(Counter(rows["status"].to_pylist()).items()))
    return {"pairs": rows.num_rows, "by_status": by_status, "rows_sha256": digest_rows(rows)}
