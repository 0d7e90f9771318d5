"""Candidates: what a selection chooses among. A candidate is a built kernel with a value of its launch knob split-K."""

import pandas as pd
import pyarrow as pa

from tileseer.libraries.registry import library_of_kernels

RESOURCES = ("vgprs", "lds_bytes", "occupancy")

ALIASES = " "
"""Between the names of a kernel's column ``aliases``: other kernels with the same machine code."""


def label(kernel: str, split_k: int) -> str:
    """Return a candidate as it is written: the kernel's name, and the split-K where there is one."""
    return kernel if split_k == 1 else f"{kernel}@splitk{split_k}"


def from_build(build: pa.Table) -> pd.DataFrame:
    """Return a row a candidate of a build table, in its order.

    Columns: ``candidate``, ``split_k``, the columns of the build and every field of the library's kernels.
    """
    rows = build.to_pandas().explode("split_k", ignore_index=True)
    rows["split_k"] = rows["split_k"].astype("int64")
    return with_fields(rows)


def with_fields(rows: pd.DataFrame) -> pd.DataFrame:
    """Add ``candidate`` and the kernel's fields to rows with ``kernel`` and ``split_k``; the name says them all.

    No row has no library, so an empty chunk gets no fields.
    """
    if rows.empty:
        return rows.assign(candidate=pd.Series(dtype="object"))
    names = rows["kernel"].tolist()
    kernel = library_of_kernels(names).kernel
    fields = kernel.frame([kernel.parse(name) for name in names]).drop(columns="kernel")
    labels = [label(name, split) for name, split in zip(rows["kernel"], rows["split_k"], strict=True)]
    return pd.concat([pd.Series(labels, name="candidate", dtype="object"), rows.reset_index(drop=True), fields], axis=1)
