"""The schema of a dataset file: one row per (candidate, problem) pair with what became of it."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.measure.device import are_speeds, are_times
from tileseer.problems.problem import DIMS
from tileseer.problems.problem import FIELDS as PROBLEM_FIELDS

NAME = pa.dictionary(pa.int32(), pa.string())
CODE = (
    "agprs", "sgprs", "scratch_bytes", "vgpr_spills", "code_bytes",
    "n_mfma", "n_buffer_loads", "n_buffer_stores", "n_lds_reads", "n_lds_writes", "n_barriers",
)  # fmt: skip
"""Facts of a kernel that only a compiler has; empty in a dataset of estimates."""
SCHEMA = pa.schema(
    [
        pa.field("kernel", NAME, False),
        pa.field("kernel_id", NAME, False),
        pa.field("alias_of", NAME, False),
        pa.field("split_k", pa.int32(), False),
        pa.field("problem_key", NAME, False),
        pa.field("layer_family", NAME, False),
        pa.field("split", NAME, False),
        pa.field("network", NAME, False),
        pa.field("layer", NAME, False),
        *(pa.field(name, pa.int32() if name in (*DIMS, "ndim") else NAME, False) for name in PROBLEM_FIELDS),
        pa.field("status", NAME, False),
        pa.field("reason", NAME, False),
        pa.field("latency_ms", pa.float64()),
        pa.field("tflops", pa.float64()),
        pa.field("non_zero", pa.int64()),
        pa.field("samples", pa.int32()),
        pa.field("latency_cv", pa.float64()),
        pa.field("sentinel", pa.float64()),
        pa.field("rank", pa.int32()),
        pa.field("resources_from", NAME, False),
        pa.field("vgprs", pa.float64()),
        pa.field("lds_bytes", pa.int32()),
        pa.field("occupancy", pa.float64()),
        *(pa.field(name, pa.int32()) for name in CODE),
    ]
)
"""Columns of the dataset, documented in docs/internals/data.md. Rows are ordered by problem, then by candidate. Rows
with ``alias_of`` repeat those of that kernel; in memory they are only names of it."""
LAYOUT = pa.field("layout", NAME, False)
"""One more column, of problems in several layouts."""

TIMED = {"latency_ms": ("time", are_times), "tflops": ("speed", are_speeds)}
"""Columns that every ``ok`` row has, what they are, and which values are possible."""
BUILD = ("kernel", "kernel_id", "resources_from", "vgprs", "lds_bytes", "occupancy", *CODE)
PROBLEM = ("problem_key", "layer_family", "split", "network", "layer", *PROBLEM_FIELDS)


def with_layout(fields: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """``fields``, and ``LAYOUT`` if it is among ``columns``."""
    return fields.append(LAYOUT) if LAYOUT.name in columns else fields


def read_rows(path: Path) -> pa.Table:
    """The rows of a dataset file; a ``UserError`` if one has a number that cannot be, or is ``ok`` without a time."""
    table = parquet.read_table(path, SCHEMA)
    ok = np.asarray(pc.equal(table["status"].cast("string"), "ok"))
    for field in SCHEMA:
        if pa.types.is_floating(field.type):
            column = table[field.name]
            values = column.to_numpy()
            wrong = ~np.isfinite(values) & ~np.asarray(column.is_null())
            if field.name in TIMED:
                wrong |= ok & ~TIMED[field.name][1](values)
            _refuse(path, field.name, values, wrong)
    return table


def _refuse(path: Path, name: str, values: np.ndarray, wrong: np.ndarray) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        what = f"a row with status ok has no {TIMED[name][0]}" if name in TIMED else "a number in it is none"
        raise UserError(f"{path}: row {row}, {name} is {values[row]}: {what}; make the file again")


def typed(table: pa.Table, used: pa.ChunkedArray | None = None) -> pa.Table:
    """Table in the types of ``SCHEMA``: names over an alphabetical dictionary of those that occur.

    ``used``: numbers of the rows that occur; without it, all do.
    """
    columns, fields = {}, with_layout(SCHEMA, table.column_names)
    occurring = table if used is None else table.take(pc.unique(used))
    for name in table.column_names:
        values, type_ = table[name].combine_chunks(), fields.field(name).type
        if type_ == NAME:
            words = pc.unique(occurring[name]).sort()
            columns[name] = pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=words), words)
        else:
            columns[name] = values.cast(type_)
    return pa.table(columns)
