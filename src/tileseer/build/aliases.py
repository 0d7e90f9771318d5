"""Kernels with the same machine code: one of them is measured, and its times count for all of their names.

Two kernels are the same if a compiler made the same code of them, they are launched alike, and they can run the same
problems. The first by name stands for the others, whatever chunks they are in. Without a compiler nothing is known of
machine code, and every kernel is measured.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import parquet
from tileseer.libraries import candidates

SCHEMA = parquet.schema(
    [("kernel", pa.string()), ("kernel_id", pa.string()), ("alias_of", pa.string()), ("alias_of_id", pa.string())]
)
"""One row a kernel that is not measured, by name: the kernel that is measured in its place."""
LAUNCH_FIELDS = (
    "ndim",
    "num_groups_to_merge",
    "two_stage",
    "streamk",
    "streamk_persistent",
    "split_image",
    "explicit_gemm",
    "iterator",
    "swizzle",
    "strides",
    "group_mode",
)
"""What decides grid and arguments on the host, beside the code."""


def find_aliases(builds: Sequence[pa.Table], supported: Sequence[pa.Table]) -> pa.Table:
    """Return the aliases (``SCHEMA``) among the kernels of all chunks, from their builds and their supported pairs."""
    built = pa.concat_tables(builds).select(["kernel", "kernel_id", "build_status", "code_hash"]).to_pandas()
    built = built[(built["build_status"] == "ok") & (built["code_hash"] != "")].drop(columns="build_status")
    if built.empty:
        return SCHEMA.empty_table()
    kernels = candidates.with_fields(built.assign(split_k=1)).sort_values("kernel", ignore_index=True)
    same = ["code_hash", *(field for field in LAUNCH_FIELDS if field in kernels)]
    kernels = kernels[kernels.duplicated(same, keep=False)]
    kernels = kernels.assign(runs=kernels["kernel_id"].map(_runs(supported, kernels["kernel_id"])))
    first = kernels.groupby([*same, "runs"], sort=False)[["kernel", "kernel_id"]].transform("first")
    aliased = kernels[["kernel", "kernel_id"]].assign(alias_of=first["kernel"], alias_of_id=first["kernel_id"])
    aliased = aliased[aliased["kernel"] != aliased["alias_of"]]
    return pa.Table.from_pandas(aliased, SCHEMA, preserve_index=False).replace_schema_metadata(None)


def read_aliases(path: Path | None) -> pa.Table:
    """Return a table of aliases from its file; empty without one, ``UserError`` when it is another one."""
    if path is None:
        return SCHEMA.empty_table()
    return parquet.read_table(path, SCHEMA)


def measured_mask(pairs: pa.Table, known: pa.Table) -> pa.Array:
    """Return the mask of the rows (of a table with ``kernel_id``) whose kernels are measured themselves."""
    return pc.invert(pc.is_in(_ids(pairs), value_set=known["kernel_id"].combine_chunks()))


def alias_names(kernels: pa.Array, known: pa.Table) -> pa.Array:
    """Return for each kernel name that of the kernel measured in its place, empty for those measured themselves."""
    aliases, stand_ins = (known[name].combine_chunks() for name in ("kernel", "alias_of"))
    return pc.fill_null(stand_ins.take(pc.index_in(kernels.cast(pa.string()), value_set=aliases)), "")


def _ids(pairs: pa.Table) -> pa.Array:
    return pairs["kernel_id"].cast(pa.string()).combine_chunks()


def _runs(supported: Sequence[pa.Table], kernel_ids: pd.Series) -> pd.Series:
    """Return the digest of the pairs that each kernel can run, by kernel id."""
    known_ids = pa.array(kernel_ids, pa.string())
    parts = []
    for part in supported:
        rows = part.filter(pc.is_in(_ids(part), value_set=known_ids))
        texts = (rows[name].cast(pa.string()) for name in ("split_k", "problem_key"))
        parts.append(pd.DataFrame({"id": _ids(rows), "pair": pc.binary_join_element_wise(*texts, "/").to_pandas()}))
    pairs = pd.concat(parts).sort_values(["id", "pair"]).groupby("id")["pair"]
    digests = pairs.agg(lambda rows: hashlib.sha256("\n".join(rows).encode()).hexdigest())
    return digests.reindex(kernel_ids.unique(), fill_value="")
