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

from tileseer.benchmark.journal import MeasuredBy
from tileseer.benchmark.pairs import IDENTITY, pair_text
from tileseer.core import documents
from tileseer.core.atomic import write_text
from tileseer.core.tables import Table, checked

PASSING = ("throttled", "contended")
COUNTED = (*IDENTITY, "status", "error", "latency_ms", "tflops", "non_zero", "samples", "latency_cv")


class Receipt(Table):
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
    """Wanted pairs without a measurement, because a budget was spent."""
    repeats: int = Field(default=0, alias="again")
    """Rows of the journal of repeat measurements that count."""
    repeats_sha256: str = Field(default="", alias="again_sha256")
    """Their digest."""
    differences: list[float] = Field(default_factory=list)
    """Logarithm of the repeated time over the first one, of the pairs that were drawn to be repeated."""

    @property
    def measured_by(self) -> MeasuredBy:
        """Whose rows it is about."""
        return MeasuredBy(self.arch, self.device, self.device_kind, self.measurement_id)

    def write(self, path: Path) -> None:
        """Write the receipt as JSON."""
        write_text(path, documents.json_text(self.model_dump(by_alias=True)), sealed=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a receipt; a damaged one is a ``UserError``."""
        return checked(documents.read_json(path), cls, f"{path}: this is no receipt; delete it and run again")


def counted(mine: pa.Table, wanted: pa.Table) -> pa.Table:
    """The rows of the wanted pairs, one a pair, in the order of ``wanted``, among those of this device in a journal.

    It is the first row of the pair, but one of passing trouble only if there is no other.
    Rows of other pairs, kernels, devices or settings stay in the journal and do not count.
    """
    # A second try counts, wherever it stands.
    mine = pa.concat_tables([mine.filter(pc.invert(passing(mine))), mine.filter(passing(mine))])
    index = pc.index_in(pair_text(wanted), value_set=pair_text(mine).combine_chunks())
    return mine.take(index.drop_null())


def passing(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows tell of a state of the device that may pass: the next run measures such pairs again."""
    return pc.is_in(rows["status"], pa.array(PASSING))


class RowsDigest:
    """SHA-256 of the measurements of some rows as text; it does not depend on their order.

    Rows may come in parts, if those of each part have greater kernel ids than those of the part before.
    """

    def __init__(self) -> None:
        # As Arrow writes a header.
        self._digest = hashlib.sha256((",".join(f'"{column}"' for column in COUNTED) + "\n").encode())

    def update(self, rows: pa.Table) -> None:
        """Add a part."""
        ordered = rows.select(COUNTED).sort_by([(column, "ascending") for column in IDENTITY])
        text = io.BytesIO()
        pa_csv.write_csv(ordered, text, pa_csv.WriteOptions(quoting_style="none", include_header=False))
        self._digest.update(text.getvalue())

    def hexdigest(self) -> str:
        """Digest of all parts."""
        return self._digest.hexdigest()


def digest(rows: pa.Table) -> str:
    """SHA-256 of the rows' measurements as text; it does not depend on their order."""
    made = RowsDigest()
    made.update(rows)
    return made.hexdigest()


class Account:
    """What a receipt says of the rows that count; they may come in parts as those of ``RowsDigest``."""

    def __init__(self) -> None:
        self.pairs = 0
        self.by_status: Counter[str] = Counter()
        self.digest = RowsDigest()

    def add(self, rows: pa.Table) -> None:
        """Add a part."""
        self.pairs += rows.num_rows
        self.by_status += Counter(status_counts(rows))
        self.digest.update(rows)

    def fields(self) -> dict[str, Any]:
        """Fields of ``Receipt``."""
        statuses = dict(sorted(self.by_status.items()))
        return {"pairs": self.pairs, "by_status": statuses, "rows_sha256": self.digest.hexdigest()}


def status_counts(rows: pa.Table) -> dict[str, int]:
    """Number of rows of each status, in name order."""
    found = rows["status"].combine_chunks().value_counts().to_pylist()
    return {entry["values"]: entry["counts"] for entry in sorted(found, key=lambda entry: str(entry["values"]))}
