"""The support stage: which pairs of a chunk's kernels and the problems can run, decided on the CPU by rules."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.build.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.facts.hardware import Hardware, read_hardware
from tileseer.libraries import candidates as candidate_tables
from tileseer.libraries.registry import check_support, library_of_kernels
from tileseer.problems import problem_table
from tileseer.problems.operation import Operation

SUPPORTED = ""
NOT_BUILT = "build"
"""Verdict on pairs of a kernel that was not built."""
_NAME_TYPE = pa.dictionary(pa.int32(), pa.string())
SCHEMA = parquet.schema(
    [("kernel_id", _NAME_TYPE), ("split_k", pa.int32()), ("problem_key", _NAME_TYPE), ("rule", _NAME_TYPE)]
)
"""``rule`` is empty for a pair that can run, else the name of the first rule that refuses it."""
RANK = pa.field("rank", pa.int32())
"""A further column where a library offers the candidates: the place of each in its own order, from 0."""


def decide_support(operation: str, build: Path, problems: Path, hardware: Path, product: str) -> pa.Table:
    """Return the support table of a chunk, from the files of its kernels and of the problems."""
    entries = parquet.read_table(problems, problem_table.SCHEMA).to_pandas()
    built = candidate_tables.from_build(parquet.read_table(build, BUILD))
    return build_support_table(entries, built, Operation.parse(operation).variant, read_hardware(hardware, product))


def build_support_table(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware) -> pa.Table:
    """Return one row a pair of the same dimensionality, by problem and then by candidate, in the given orders."""
    if candidates.empty:
        return SCHEMA.empty_table()
    names = [*library_of_kernels(candidates["kernel"].tolist()).rules.names, NOT_BUILT]
    verdicts = check_support(problems, candidates, variant, hardware).astype(np.int32)
    verdicts[:, (candidates["build_status"] != "ok").to_numpy()] = names.index(NOT_BUILT)
    same_ndim = problems["ndim"].to_numpy()[:, None] == candidates["ndim"].to_numpy()[None, :]
    problem, candidate = (index.astype(np.int32) for index in np.nonzero(same_ndim))
    return pa.table(
        [
            _dictionary(candidate, candidates["kernel_id"].tolist()),
            pa.array(candidates["split_k"].to_numpy(np.int32)[candidate]),
            _dictionary(problem, problems["problem_key"].tolist()),
            _dictionary(verdicts[same_ndim], names),
        ],
        schema=SCHEMA,
    )


def supported(pairs: pa.Table) -> pa.ChunkedArray:
    """Return which rows of a support table are pairs that can run."""
    return pc.equal(pairs["rule"].cast(pa.string()), SUPPORTED)


def _dictionary(index: np.ndarray, values: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(values, pa.string()))
