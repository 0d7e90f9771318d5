"""The dataset: one row a (candidate, problem) pair with what became of it; its schema, and how it is read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.conv.problem import DIMS
from tileseer.conv.problem import FIELDS as PROBLEM_FIELDS
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.dataset import provenance
from tileseer.dataset.measurements import Measurements
from tileseer.devices.base import STATUSES
from tileseer.families import candidates as candidate_tables

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


def load(path: Path) -> Measurements:
    """Read a dataset file into memory, as problems, candidates and pairs."""
    return of_table(read(path), path)


def read(path: Path) -> pa.Table:
    """The rows of a dataset file; a ``UserError`` if one is ``ok`` and has no time."""
    table = parquet.read(path, SCHEMA)
    ok = pc.equal(table["status"].cast("string"), "ok")
    for name, what in (("latency_ms", "time"), ("tflops", "speed")):
        timed = table[name].filter(ok)
        if timed.null_count or pc.any(pc.less_equal(timed, 0)).as_py():
            raise UserError(f"{path}: a row with status ok has no {what} in {name}; make the file again")
    return table


def of_table(table: pa.Table, path: Path) -> Measurements:
    """The content of a dataset; ``path`` names it in errors."""
    told = provenance.of_table(table, path)
    table, aliases = _without_aliases(table)
    problem, problems = _distinct(table, ["problem_key"], PROBLEM)
    candidate, kernels = _distinct(table, ["kernel", "split_k"], (*BUILD, "split_k"))
    status = pc.index_in(table["status"].cast("string"), value_set=pa.array(STATUSES))
    between = told.between_runs.relative if told.between_runs else None
    within = table["latency_cv"].to_numpy() / np.sqrt(np.maximum(table["samples"].to_numpy(), 1))
    return Measurements(
        arch=told.arch,
        operation=told.operation,
        device=told.device,
        device_kind=told.device_kind,
        problems=problems,
        candidates=candidate_tables.with_fields(kernels).assign(
            aliases=[aliases.get(name, "") for name in kernels["kernel"]]
        ),
        problem=problem,
        candidate=candidate,
        status=status.to_numpy().astype(np.uint8),
        latency_ms=table["latency_ms"].to_numpy(),
        tflops=table["tflops"].to_numpy(),
        # Samples of one worker that agree with each other say nothing of the next worker.
        relative_error=within if between is None else np.fmax(within, between),
        source=told.recording.provenance.get("source") if told.recording else None,
        library=told.recording.library if told.recording else None,
        between_runs=between,
        sentinel=table["sentinel"].to_numpy(),
        rank=table["rank"].to_numpy().astype(np.float64) if table["rank"].null_count < table.num_rows else None,
    )


def _without_aliases(table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """The rows of kernels that were measured themselves, and by kernel its other names, in their order."""
    stand_in = table["alias_of"].cast(pa.string())
    is_alias = pc.not_equal(stand_in, "")
    if not pc.any(is_alias).as_py():
        return table, {}
    pairs = pa.table({"kernel": table["kernel"].cast(pa.string()), "alias_of": stand_in}).filter(is_alias)
    names = pairs.to_pandas().drop_duplicates().sort_values("kernel").groupby("alias_of")["kernel"]
    return table.filter(pc.invert(is_alias)), names.agg(candidate_tables.ALIASES.join).to_dict()


def _distinct(table: pa.Table, keys: list[str], columns: Sequence[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """For each row the number of its distinct key, and one row of ``columns`` a key, in key order."""
    frame = pd.DataFrame({key: table[key].combine_chunks().to_pandas().astype(object) for key in keys})
    number = frame.groupby(keys, sort=True).ngroup().to_numpy().astype(np.int32)
    first = np.unique(number, return_index=True)[1]
    rows = table.select(list(dict.fromkeys(columns))).take(pa.array(first)).to_pandas()
    for name, values in rows.items():
        if isinstance(values.dtype, pd.CategoricalDtype):
            rows[name] = values.astype(str)
        elif name in (*DIMS, "ndim", "split_k", "lds_bytes") and not values.hasnans:
            # A kernel that was not built has no LDS: its column stays a float.
            rows[name] = values.astype("int64")
        elif name in CODE:
            rows[name] = values.astype("float64")
    return number, rows
