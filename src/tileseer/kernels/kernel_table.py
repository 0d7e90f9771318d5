"""The table of kernels that the configs stage writes and the kernel stages read."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import parquet
from tileseer.kernels.gemm_kernel import Kernel, field_types
from tileseer.kernels.plan import chunk_of
from tileseer.kernels.registry import of_kernels

_TYPES = {"str": pa.string(), "bool": pa.bool_(), "int": pa.int32()}


def schema(kind: type[Kernel]) -> pa.Schema:
    """Columns for one family: name, every field of its kernels, the split-K values to measure, the chunk."""
    fields = [(field, _TYPES[name]) for field, name in field_types(kind).items()]
    own = [("split_k", pa.list_(pa.int32())), ("chunk", pa.int32())]
    return parquet.schema([("kernel", pa.string()), *fields, *own])


def table(kernels: Sequence[Kernel], split_k: list[int], chunks: int) -> pa.Table:
    """One row a kernel, all of one family, in the given order; there is at least one."""
    names = [kernel.name for kernel in kernels]
    kind = type(kernels[0])
    fields = {field: [getattr(kernel, field) for kernel in kernels] for field in field_types(kind)}
    return pa.table(
        {
            "kernel": names,
            **fields,
            "split_k": [split_k] * len(kernels),
            "chunk": [chunk_of(kernel, chunks) for kernel in names],
        },
        schema=schema(kind),
    )


def planned(rows: pa.Table) -> list[tuple[int, str]]:
    """For the plan: chunk of each row, and a text of all that later stages read of it."""
    # The name says every field of the kernel.
    columns = zip(rows["chunk"].to_pylist(), rows["kernel"].to_pylist(), rows["split_k"].to_pylist(), strict=True)
    return [(chunk, f"{kernel} {split_k}") for chunk, kernel, split_k in columns]


def read(path: Path) -> pa.Table:
    """The whole table."""
    names = parquet.read_table(path, parquet.schema([("kernel", pa.string())]))["kernel"].to_pylist()
    return parquet.read_table(path, schema(of_kernels(names).kernel))


def read_chunk(path: Path, chunk: int) -> pa.Table:
    """Rows of one chunk, in file order."""
    rows = read(path)
    return rows.filter(pc.equal(rows["chunk"], chunk))


def kernels(rows: pa.Table) -> list[Kernel]:
    """Kernels of a table, all of one family, in its order; a chunk may have none."""
    if not rows.num_rows:
        return []
    kind = of_kernels(rows["kernel"].to_pylist()).kernel
    return [kind(*values) for values in zip(*(rows[field].to_pylist() for field in field_types(kind)), strict=True)]
