"""Candidates: what a selection chooses among. A candidate is a built kernel with a value of its launch knob split-K."""

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.kernels.registry import family_of_kernels
from tileseer.problems.implicit_gemm import element_bytes

RESOURCES = ("vgprs", "lds_bytes", "occupancy")
VECTOR_BYTES = 16
"""The widest load or store of a lane."""

ALIASES = " "
"""Between the names of a kernel's column ``aliases``: other kernels with the same machine code."""


def label(kernel: str, split_k: int) -> str:
    """How a candidate is written: the kernel's name, and the split-K where there is one."""
    return kernel if split_k == 1 else f"{kernel}@splitk{split_k}"


def from_build(build: pa.Table) -> pd.DataFrame:
    """One row a candidate of a build table, in its order.

    Columns: ``candidate``, ``split_k``, the columns of the build and every field of the family's kernels.
    """
    rows = build.to_pandas().explode("split_k", ignore_index=True)
    rows["split_k"] = rows["split_k"].astype("int64")
    return with_fields(rows)


def with_fields(rows: pd.DataFrame) -> pd.DataFrame:
    """Add ``candidate`` and the kernel's fields to rows with ``kernel`` and ``split_k``; the name says them all.

    No row has no family, so an empty chunk gets no fields.
    """
    if rows.empty:
        return rows.assign(candidate=pd.Series(dtype="object"))
    names = rows["kernel"].tolist()
    kernel = family_of_kernels(names).kernel
    fields = kernel.frame([kernel.parse(name) for name in names]).drop(columns="kernel")
    labels = [label(name, split) for name, split in zip(rows["kernel"], rows["split_k"], strict=True)]
    return pd.concat([pd.Series(labels, name="candidate", dtype="object"), rows.reset_index(drop=True), fields], axis=1)


def capped_vectors(candidates: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elements of one access of A, B and C, at most 16 bytes each, float64 [Q] each."""
    widest = VECTOR_BYTES / element_bytes(candidates["dtype"])
    a, b, c = (np.minimum(candidates[f"vec_{x}"].to_numpy(np.float64), widest) for x in "abc")
    return a, b, c
