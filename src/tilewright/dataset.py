"""The dataset: one row a (candidate, problem) pair with what became of it, from the journals and the support tables.

Pairs that the CPU already refused have the status ``unsupported``, pairs of kernels that did not build the status of
their build; every measured pair has the row of its journal. Malformed journal lines go to a quarantine file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tilewright import candidates as candidate_tables
from tilewright import parquet, support_table
from tilewright.bench import journal as journals
from tilewright.bench.receipt import Receipt, counted, digest
from tilewright.errors import UserError
from tilewright.measurements import STATUSES, Measurements
from tilewright.problem import DIMS
from tilewright.problem import FIELDS as PROBLEM_FIELDS

SCHEMA_VERSION = 1
_NAME = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("kernel", _NAME, False),
        pa.field("kernel_id", _NAME, False),
        pa.field("split_k", pa.int32(), False),
        pa.field("problem_key", _NAME, False),
        pa.field("layer_family", _NAME, False),
        pa.field("split", _NAME, False),
        pa.field("network", _NAME, False),
        pa.field("layer", _NAME, False),
        *(pa.field(name, pa.int32() if name in (*DIMS, "ndim") else _NAME, False) for name in PROBLEM_FIELDS),
        pa.field("status", _NAME, False),
        pa.field("reason", _NAME, False),
        pa.field("latency_ms", pa.float64()),
        pa.field("tflops", pa.float64()),
        pa.field("non_zero", pa.int64()),
        pa.field("samples", pa.int32()),
        pa.field("latency_cv", pa.float64()),
        pa.field("resources_from", _NAME, False),
        pa.field("vgprs", pa.float64()),
        pa.field("lds_bytes", pa.int32()),
        pa.field("occupancy", pa.float64()),
    ]
)
"""Columns of the dataset, documented in docs/dataset.md. Rows are ordered by problem, then by candidate."""

_BUILD = ("kernel", "kernel_id", "resources_from", "vgprs", "lds_bytes", "occupancy")
_PROBLEM = ("problem_key", "layer_family", "split", "network", "layer", *PROBLEM_FIELDS)
_MEASURED = ("latency_ms", "tflops", "non_zero", "samples", "latency_cv")


@dataclass(frozen=True)
class Chunk:
    """The files of one chunk: its build table, its support table and its benchmark receipt."""

    build: Path
    support: Path
    receipt: Path


@dataclass(frozen=True)
class Quarantined:
    """A journal line that is no measurement."""

    journal: str
    line: int
    reason: str
    text: str


def assemble(
    chunks: Sequence[Chunk], problems: pa.Table, arch: str, operation: str
) -> tuple[pa.Table, list[Quarantined]]:
    """Return the dataset (``SCHEMA``, provenance in its metadata) and the malformed lines of all journals."""
    parts, quarantine, receipts = [], [], []
    for chunk in chunks:
        receipt = Receipt.read(chunk.receipt)
        receipts.append(receipt)
        measured, malformed = journals.read(Path(receipt.journal))
        quarantine += [Quarantined(receipt.journal, m.line, m.reason, m.text) for m in malformed]
        parts.append(_chunk_rows(chunk, receipt, measured, problems))
    table = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    keys = (table["split_k"].to_numpy(), _ranks(table["kernel"]), _ranks(table["problem_key"]))
    table = table.take(pa.array(np.lexsort(keys)))
    return table.replace_schema_metadata(_provenance(receipts, table, arch, operation)), quarantine


def _chunk_rows(chunk: Chunk, receipt: Receipt, measured: pa.Table, problems: pa.Table) -> pa.Table:
    pairs = parquet.read(chunk.support)
    wanted = pairs.filter(pc.equal(pairs["rule"].cast("string"), support_table.SUPPORTED))
    rows = counted(measured, receipt.measurement_id, wanted)
    if rows.num_rows != receipt.pairs or digest(rows) != receipt.rows_sha256:
        raise UserError(
            f"{receipt.journal}: its measurements are not those that {chunk.receipt} vouches for "
            f"({rows.num_rows} of {receipt.pairs} pairs found); delete the receipt and run again to measure what is missing"
        )
    build = parquet.read(chunk.build)
    rule = pairs["rule"].combine_chunks()
    refused = pc.invert(pc.equal(rule.cast("string"), support_table.SUPPORTED))
    position = np.flatnonzero(~np.asarray(refused))
    status = pa.array(["unsupported"] * pairs.num_rows)
    columns = {name: _scatter(rows[name], position, pairs.num_rows) for name in (*_MEASURED, "status", "error")}
    status = pc.coalesce(columns["status"], status)
    kernel = pc.index_in(pairs["kernel_id"].cast("string").combine_chunks(), value_set=build["kernel_id"].combine_chunks())
    problem = pc.index_in(
        pairs["problem_key"].cast("string").combine_chunks(), value_set=problems["problem_key"].combine_chunks()
    )
    table = {
        **{name: build[name].combine_chunks().take(kernel) for name in _BUILD},
        **{name: problems[name].combine_chunks().take(problem) for name in _PROBLEM},
        "split_k": pairs["split_k"].combine_chunks(),
        "status": status,
        "reason": pc.if_else(refused, rule.cast("string"), pc.coalesce(columns["error"], pa.scalar(""))),
        **{name: columns[name] for name in _MEASURED},
    }
    return pa.table([_as(table[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _ranks(values: pa.ChunkedArray) -> np.ndarray:
    """Return numbers that sort as the names of a dictionary column do."""
    column = values.combine_chunks()
    order = np.empty(len(column.dictionary), np.int64)
    order[pc.array_sort_indices(column.dictionary).to_numpy()] = np.arange(len(order))
    return order[column.indices.to_numpy()]


def _scatter(values: pa.ChunkedArray, position: np.ndarray, length: int) -> pa.Array:
    """Return an array of ``length`` with ``values`` at ``position`` and nulls elsewhere."""
    index = np.full(length, -1, np.int64)
    index[position] = np.arange(len(position))
    return values.combine_chunks().take(pa.array(index, mask=index < 0))


def _as(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values.dictionary_encode() if type_ == _NAME and values.type == pa.string() else values.cast(type_)


def _provenance(receipts: Sequence[Receipt], table: pa.Table, arch: str, operation: str) -> dict[str, str]:
    def only(name: str) -> str:
        values = {getattr(receipt, name) for receipt in receipts}
        if len(values) != 1:
            raise UserError(f"{arch} {operation}: chunks disagree about {name}: {sorted(values)}; run the benchmark again")
        return values.pop()

    counts = table["status"].combine_chunks().value_counts().to_pylist()
    return {
        "tilewright": json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "arch": arch,
                "operation": operation,
                "device": only("device"),
                "device_kind": only("device_kind"),
                "measurement_id": only("measurement_id"),
                "rows_by_status": {count["values"]: count["counts"] for count in counts},
            },
            sort_keys=True,
        )
    }


def load(path: Path) -> Measurements:
    """Read a dataset file into memory, as problems, candidates and pairs."""
    table = parquet.read(path)
    try:
        provenance = json.loads((table.schema.metadata or {})[b"tilewright"])
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: this is no Tilewright dataset: its provenance is missing") from error
    if provenance["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {provenance['schema_version']}, but this program reads {SCHEMA_VERSION}; make it again"
        )
    problem, problems = _distinct(table, ["problem_key"], _PROBLEM)
    candidate, kernels = _distinct(table, ["kernel", "split_k"], (*_BUILD, "split_k"))
    status = pc.index_in(table["status"].cast("string"), value_set=pa.array(STATUSES))
    return Measurements(
        arch=provenance["arch"],
        operation=provenance["operation"],
        device=provenance["device"],
        device_kind=provenance["device_kind"],
        problems=problems,
        candidates=candidate_tables.with_fields(kernels),
        problem=problem,
        candidate=candidate,
        status=status.to_numpy().astype(np.uint8),
        latency_ms=table["latency_ms"].to_numpy(),
        tflops=table["tflops"].to_numpy(),
    )


def _distinct(table: pa.Table, keys: list[str], columns: Sequence[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """Return for each row the number of its distinct key, and one row of ``columns`` a key, in key order."""
    frame = pd.DataFrame({key: table[key].combine_chunks().to_pandas().astype(object) for key in keys})
    number = frame.groupby(keys, sort=True).ngroup().to_numpy().astype(np.int32)
    first = np.unique(number, return_index=True)[1]
    rows = table.select(list(dict.fromkeys(columns))).take(pa.array(first)).to_pandas()
    for name, values in rows.items():
        if isinstance(values.dtype, pd.CategoricalDtype):
            rows[name] = values.astype(str)
        elif name in (*DIMS, "ndim", "split_k", "lds_bytes"):
            rows[name] = values.astype("int64")
    return number, rows
