"""The support stage: which pairs of a chunk's candidates and the problems can run, decided on the CPU."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import parquet
from tileseer.families.registry import of_kernels
from tileseer.families.support_rules import check

SUPPORTED = ""
NOT_BUILT = "build"
"""Verdict on pairs of a kernel that was not built."""
LIBRARY = "library"
"""Verdict on pairs that our rules allow and the compiled library's own checks refuse."""
SCHEMA = parquet.schema(
    [
        ("kernel_id", pa.dictionary(pa.int32(), pa.string())),
        ("split_k", pa.int32()),
        ("problem_key", pa.dictionary(pa.int32(), pa.string())),
        ("rule", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""``rule`` is empty for a pair that can run, else the name of the first rule that refuses it."""
DISAGREEMENTS = pa.schema([("kernel", pa.string()), *SCHEMA, ("library", pa.bool_())])
"""Pairs of built kernels on which the library and our rules differ: ``library`` says whether it runs the pair, ``rule``
is our first rule against it."""


def table(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int, library: np.ndarray | None = None
) -> pa.Table:
    """One row a pair of the same dimensionality, by problem and then by candidate, in the given orders.

    The verdict is that of our rules or, if it is given, of the ``library``: bool [P, Q], which pairs it runs.
    """
    rules = of_kernels(candidates["kernel"].tolist()).part("support").RULES
    verdicts = check(problems, candidates, variant, wave_size).astype(np.int32)
    names = [SUPPORTED, *(rule.name for rule in rules), NOT_BUILT, LIBRARY]
    if library is not None:
        verdicts = np.where(library, 0, np.where(verdicts == 0, names.index(LIBRARY), verdicts))
    verdicts[:, (candidates["build_status"] != "ok").to_numpy()] = names.index(NOT_BUILT)
    return _rows(problems, candidates, verdicts, names, _same_ndim(problems, candidates))


def disagreements(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int, library: np.ndarray
) -> pa.Table:
    """Pairs (``DISAGREEMENTS``) on which the ``library`` and our rules differ, in the order of ``table``."""
    rules = of_kernels(candidates["kernel"].tolist()).part("support").RULES
    verdicts = check(problems, candidates, variant, wave_size).astype(np.int32)
    built = (candidates["build_status"] == "ok").to_numpy()
    differ = _same_ndim(problems, candidates) & built & (library != (verdicts == 0))
    rows = _rows(problems, candidates, verdicts, [SUPPORTED, *(rule.name for rule in rules)], differ)
    kernels = pa.array(candidates["kernel"].to_numpy()[np.nonzero(differ)[1]], pa.string())
    return pa.table([kernels, *rows.columns, pa.array(library[differ], pa.bool_())], schema=DISAGREEMENTS)


def _same_ndim(problems: pd.DataFrame, candidates: pd.DataFrame) -> np.ndarray:
    return problems["ndim"].to_numpy()[:, None] == candidates["ndim"].to_numpy()[None, :]


def _rows(
    problems: pd.DataFrame, candidates: pd.DataFrame, verdicts: np.ndarray, names: list[str], wanted: np.ndarray
) -> pa.Table:
    problem, candidate = (index.astype(np.int32) for index in np.nonzero(wanted))
    return pa.table(
        [
            _dictionary(candidate, candidates["kernel_id"].tolist()),
            pa.array(candidates["split_k"].to_numpy(np.int32)[candidate]),
            _dictionary(problem, problems["problem_key"].tolist()),
            _dictionary(verdicts[wanted], names),
        ],
        schema=SCHEMA,
    )


def supported(pairs: pa.Table) -> pa.ChunkedArray:
    """Which rows of a support table are pairs that can run."""
    return pc.equal(pairs["rule"].cast(pa.string()), SUPPORTED)


def _dictionary(index: np.ndarray, values: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(values, pa.string()))


def count(table: pa.Table) -> int:
    """How many pairs of a support table can run."""
    return int(pc.sum(supported(table)).as_py() or 0)
