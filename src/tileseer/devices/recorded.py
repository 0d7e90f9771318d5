"""A device that replays a table of measurements: times of a real GPU, on any machine.

The table is a Parquet file with one row a pair: ``COLUMNS``, and in its metadata the entry ``tileseer``, a JSON
object with ``device`` (the product) and whatever else says where the numbers come from.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.devices.base import SLOWEST_MS, STATUSES, Times

COLUMNS = {
    "kernel": pa.string(), "split_k": pa.int32(), "problem_key": pa.string(), "status": pa.string(),
    "error": pa.string(), "latency_ms": pa.float64(), "latency_cv": pa.float64(), "samples": pa.int32(),
    "non_zero": pa.int64(),
}  # fmt: skip
KEY = ["kernel", "split_k", "problem_key"]
SENTINEL = "sentinel"
"""A column that a recording may have, as ``Times.sentinel`` says."""
ABSENT = "the pair is not in the recording"


class RecordedDevice:
    """Answers from a table; a pair that is missing from it is ``skipped``."""

    kind = "recorded"
    largest_batch = 2**31 - 1
    order_seed: int | None = None

    def __init__(self, path: Path, product: str) -> None:
        """Read the table ``path``; it must be of the GPU product ``product``."""
        self._path = path
        table = parquet.read(path)
        if missing := sorted(set(COLUMNS) - set(table.column_names)):
            raise UserError(f"{path}: this is no recording: the column {missing[0]} is missing")
        self.provenance: dict[str, Any] = _provenance(path, table)
        self.name = product
        if self.provenance["device"] != product:
            raise UserError(
                f"{path}: the recording is of {self.provenance['device']}, but {product} stands for this arch; "
                "change benchmark.products or the tables in config/recordings"
            )
        columns = COLUMNS | ({SENTINEL: pa.float64()} if SENTINEL in table.column_names else {})
        self._rows = table.select(list(columns)).cast(pa.schema(columns.items())).to_pandas()
        if self._rows.empty:
            raise UserError(f"{path}: the recording is empty")
        twice = self._rows[self._rows.duplicated(KEY)]
        if not twice.empty:
            row = twice.iloc[0]
            raise UserError(f"{path}: the pair {row['kernel']} on {row['problem_key']} is in it twice")
        if unknown := sorted(set(self._rows["status"]) - set(STATUSES)):
            raise UserError(f"{path}: the status {unknown[0]!r} is none of {', '.join(STATUSES)}")
        wrong = self._rows[(self._rows["status"] == "ok") & ~self._rows["latency_ms"].between(0, SLOWEST_MS, "neither")]
        if not wrong.empty:
            row = wrong.iloc[0]
            told = f"{row['kernel']} on {row['problem_key']} takes {row['latency_ms']} ms"
            raise UserError(f"{path}: {told}: that is no time")
        self._index = pd.MultiIndex.from_frame(self._rows[KEY])

    def identity(self) -> str:
        """SHA-256 of the recording."""
        return hashlib.sha256(self._path.read_bytes()).hexdigest()

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Look n pairs up as ``Device.measure`` says."""
        wanted = [
            candidates["kernel"].astype(str).to_numpy()[candidate_index],
            candidates["split_k"].to_numpy(np.int32)[candidate_index],
            problems["problem_key"].astype(str).to_numpy()[problem_index],
        ]
        at = self._index.get_indexer(pd.MultiIndex.from_arrays(wanted, names=KEY))
        rows, found = self._rows.iloc[at], at >= 0
        codes = rows["status"].map(STATUSES.index).to_numpy()
        ok = found & (codes == STATUSES.index("ok"))
        return Times(
            status=np.where(found, codes, STATUSES.index("skipped")).astype(np.uint8),
            latency_ms=np.where(ok, rows["latency_ms"].to_numpy(), np.nan),
            latency_cv=np.where(ok, rows["latency_cv"].to_numpy(), np.nan),
            samples=np.where(ok, rows["samples"].to_numpy(), 0).astype(np.int32),
            error=np.where(found, rows["error"].to_numpy(), ABSENT).tolist(),
            non_zero=np.where(found, rows["non_zero"].fillna(-1).to_numpy(), -1).astype(np.int64),
            sentinel=np.where(found, rows[SENTINEL].to_numpy(), np.nan) if SENTINEL in rows else None,
        )


def write(path: Path, rows: pd.DataFrame, provenance: dict[str, Any]) -> None:
    """Write a recording: rows with ``COLUMNS`` and perhaps ``SENTINEL``, sorted by pair.

    ``provenance`` has at least ``device``.
    """
    columns = COLUMNS | ({SENTINEL: pa.float64()} if SENTINEL in rows else {})
    ordered = rows.sort_values(KEY, ignore_index=True)[list(columns)]
    table = pa.Table.from_pandas(ordered, pa.schema(columns.items()), preserve_index=False)
    parquet.write(table.replace_schema_metadata({"tileseer": json.dumps(provenance, sort_keys=True)}), path)


def _provenance(path: Path, table: pa.Table) -> dict[str, Any]:
    try:
        content = json.loads((table.schema.metadata or {})[b"tileseer"])
        content["device"]
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: this is no recording: its metadata does not name the device") from error
    return dict(content)
