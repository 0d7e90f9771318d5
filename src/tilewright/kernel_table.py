"""The table of kernels that the configs stage writes and the kernel stages read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewright import parquet
from tilewright.kernel import FIELDS, KernelConfig, name
from tilewright.plan import chunk_of

_STRINGS = ("variant", "dtype", "layout", "pipeline", "epilogue", "scheduler", "specialization", "streamk")
_FLAGS = (
    "double_smem_buffer", "two_stage", "explicit_gemm", "streamk_persistent", "split_image", "pad_m", "pad_n", "pad_k",
)  # fmt: skip


def _type(field: str) -> pa.DataType:
    if field in _STRINGS:
        return pa.string()
    return pa.bool_() if field in _FLAGS else pa.int32()


SCHEMA = pa.schema(
    [
        ("kernel", pa.string()),
        *((field, _type(field)) for field in FIELDS),
        ("split_k", pa.list_(pa.int32())),
        ("chunk", pa.int32()),
    ]
)
"""The name, every field of ``KernelConfig``, the split-K values to measure, and the chunk."""


def table(kernels: list[KernelConfig], split_k: list[int], chunks: int) -> pa.Table:
    """Return one row a kernel, in the given order."""
    names = [name(kernel) for kernel in kernels]
    fields = {field: [getattr(kernel, field) for kernel in kernels] for field in FIELDS}
    return pa.table(
        {
            "kernel": names,
            **fields,
            "split_k": [split_k] * len(kernels),
            "chunk": [chunk_of(kernel, chunks) for kernel in names],
        },
        schema=SCHEMA,
    )


def planned(rows: pa.Table) -> list[tuple[int, str]]:
    """Return what the plan wants of each row: its chunk, and a text of all that later stages read of it."""
    # The name says every field of the kernel.
    columns = zip(rows["chunk"].to_pylist(), rows["kernel"].to_pylist(), rows["split_k"].to_pylist(), strict=True)
    return [(chunk, f"{kernel} {split_k}") for chunk, kernel, split_k in columns]


def read_chunk(path: Path, chunk: int) -> pa.Table:
    """Return the rows of one chunk, in file order."""
    rows = parquet.read(path)
    return rows.filter(pc.equal(rows["chunk"], chunk))


def kernels(rows: pa.Table) -> list[KernelConfig]:
    """Return the kernels of a table, in its order."""
    columns = [rows[field].to_pylist() for field in FIELDS]
    return [KernelConfig(*values) for values in zip(*columns, strict=True)]
