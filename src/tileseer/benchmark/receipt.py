"""The receipt of a benchmarked chunk: which measurements of the journal count, and a digest of them.

The journal grows and is never a job's output; the receipt is. It is a function of what counts in the journal, so a
resumed or extended run ends with the receipt of an undisturbed one, but for lines that an interruption tore.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tileseer.core import seal
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError

PASSING = ("throttled", "contended")
IDENTITY = ("kernel_id", "split_k", "problem_key")
COUNTED = (*IDENTITY, "status", "error", "latency_ms", "tflops", "non_zero", "samples", "latency_cv")


@dataclass(frozen=True)
class Receipt:
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
    """Wanted pairs that were not measured, because a budget was spent."""
    again: int = 0
    """Rows of the second journal (``again``) that count."""
    again_sha256: str = ""
    """Their digest."""
    differences: list[float] = field(default_factory=list)
    """Of the pairs that were drawn to be measured by a second worker, the logarithm of its time over the first one."""

    def write(self, path: Path) -> None:
        """Write the receipt as JSON."""
        write_text(path, json.dumps(asdict(self), indent=2, sort_keys=True) + "\n", sealed=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a receipt; a damaged one is a ``UserError``."""
        seal.check(path)
        try:
            return cls(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}: this is no receipt ({error}); delete it and run again") from error


def pair_text(rows: pa.Table) -> pa.ChunkedArray:
    """Return one string a row that says which pair it is about."""
    return pc.binary_join_element_wise(*(rows[column].cast(pa.string()) for column in IDENTITY), "/")


def counted(journal: pa.Table, measurement_id: str, wanted: pa.Table) -> pa.Table:
    """Return the journal's rows for the wanted pairs, one a pair, in the order of ``wanted``.

    It is the first row of the pair, but one of passing trouble only if there is no other.
    Rows of other pairs, kernels, devices or settings stay in the journal and do not count.
    """
    mine = journal.filter(pc.equal(journal["measurement_id"], measurement_id))
    # A second try counts, wherever it stands.
    mine = pa.concat_tables([mine.filter(pc.invert(passing(mine))), mine.filter(passing(mine))])
    index = pc.index_in(pair_text(wanted), value_set=pair_text(mine).combine_chunks())
    return mine.take(index.drop_null())


def passing(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows tell of a state of the device that may pass: such pairs are measured again by the next run."""
    return pc.is_in(rows["status"], pa.array(PASSING))


class RowsDigest:
    """SHA-256 of the measurements of some rows as text; it does not depend on their order.

    Rows may come in parts, if those of each part have greater kernel ids than those of the part before.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        # As Arrow writes a header.
        self._digest.update((",".join(f'"{column}"' for column in COUNTED) + "\n").encode())

    def update(self, rows: pa.Table) -> None:
        """Add a part."""
        ordered = rows.select(COUNTED).sort_by([(column, "ascending") for column in IDENTITY])
        text = io.BytesIO()
        pa_csv.write_csv(ordered, text, pa_csv.WriteOptions(quoting_style="none", include_header=False))
        self._digest.update(text.getvalue())

    def hexdigest(self) -> str:
        """Return the digest of all parts."""
        return self._digest.hexdigest()


def digest(rows: pa.Table) -> str:
    """Return the SHA-256 of the rows' measurements as text; it does not depend on their order."""
    made = RowsDigest()
    made.update(rows)
    return made.hexdigest()


def status_counts(rows: pa.Table) -> dict[str, int]:
    """Return how many rows have each status, in name order."""
    names, counts = np.unique(np.asarray(rows["status"].combine_chunks(), dtype=str), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))
