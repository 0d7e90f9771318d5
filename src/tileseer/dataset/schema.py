"""The schema of a dataset file: one row per (candidate, problem) pair with what became of it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import parquet
from tileseer.core.errors import UserError
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
"""Columns of the dataset, documented in docs/data.md. Rows are ordered by problem, then by candidate. Rows
with ``alias_of`` repeat those of that kernel; in memory they are only names of it."""

BUILD = ("kernel", "kernel_id", "resources_from", "vgprs", "lds_bytes", "occupancy", *CODE)
PROBLEM = ("problem_key", "layer_family", "split", "network", "layer", *PROBLEM_FIELDS)


def read_rows(path: Path) -> pa.Table:
    """The rows of a dataset file; a ``UserError`` if one is ``ok`` and has no time."""
    table = parquet.read_table(path, SCHEMA)
    ok = pc.equal(table["status"].cast("string"), "ok")
    for name, what in (("latency_ms", "time"), ("tflops", "speed")):
        timed = table[name].filter(ok)
        if timed.null_count or pc.any(pc.less_equal(timed, 0)).as_py():
            raise UserError(f"{path}: a row with status ok has no {what} in {name}; make the file again")
    return table


def typed(table: pa.Table, used: pa.ChunkedArray | None = None) -> pa.Table:
    """Table in the types of ``SCHEMA``: names over an alphabetical dictionary of those that occur.

    ``used``: numbers of the rows that occur; without it, all do.
    """
    columns = {}
    occurring = table if used is None else table.take(pc.unique(used))
    for name in table.column_names:
        values, type_ = table[name].combine_chunks(), SCHEMA.field(name).type
        if type_ == NAME:
            words = pc.unique(occurring[name]).sort()
            columns[name] = pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=words), words)
        else:
            columns[name] = values.cast(type_)
    return pa.table(columns)
