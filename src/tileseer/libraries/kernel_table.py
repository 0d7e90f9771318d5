"""The table of kernels that the configs stage writes and the kernel stages read.

A chunk is the unit of a job, the kernel that of a result.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import content_hash, parquet
from tileseer.libraries.gemm_kernel import Kernel, field_types
from tileseer.libraries.registry import library_of_kernels

_ARROW_TYPES = {"str": pa.string(), "bool": pa.bool_(), "int": pa.int32()}


def chunk_of(kernel: str, chunks: int) -> int:
    """Return the chunk of a kernel by the hash of its name: one more kernel changes one chunk."""
    return content_hash.of_name(kernel) % chunks


def kernel_schema(kind: type[Kernel]) -> pa.Schema:
    """Return the columns for one library: name, fields of its kernels, the split-K values to measure, the chunk."""
    fields = [(field, _ARROW_TYPES[name]) for field, name in field_types(kind).items()]
    own = [("split_k", pa.list_(pa.int32())), ("chunk", pa.int32())]
    return parquet.schema([("kernel", pa.string()), *fields, *own])


def tabulate_kernels(kernels: Sequence[Kernel], split_k: list[int], chunks: int) -> pa.Table:
    """Return a row a kernel, all of one library, in their order; there is at least one."""
    schema = kernel_schema(type(kernels[0]))
    fields = {name: [getattr(kernel, name) for kernel in kernels] for name in field_types(type(kernels[0]))}
    names = [kernel.name for kernel in kernels]
    own = {"split_k": [split_k] * len(kernels), "chunk": [chunk_of(name, chunks) for name in names]}
    return pa.table({"kernel": names, **fields, **own}, schema=schema)


def read_kernel_table(path: Path, chunk: int | None = None) -> pa.Table:
    """Return the rows of one chunk, or all, in file order."""
    names = parquet.read_table(path, parquet.schema([("kernel", pa.string())]))["kernel"].to_pylist()
    rows = parquet.read_table(path, kernel_schema(library_of_kernels(names).kernel))
    return rows if chunk is None else rows.filter(pc.equal(rows["chunk"], chunk))


def kernels_of_rows(rows: pa.Table) -> list[Kernel]:
    """Return the kernels of a table, all of one library, in its order; a chunk may have none."""
    if not rows.num_rows:
        return []
    kind = library_of_kernels(rows["kernel"].to_pylist()).kernel
    return [kind(*values) for values in zip(*(rows[field].to_pylist() for field in field_types(kind)), strict=True)]
