"""The support stage: which pairs of a chunk's candidates and the problems can run, decided on the CPU."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tilewright.support import RULES, check

SUPPORTED = ""
NOT_BUILT = "build"
"""Verdict on pairs of a kernel that was not built."""
SCHEMA = pa.schema(
    [
        ("kernel_id", pa.dictionary(pa.int32(), pa.string())),
        ("split_k", pa.int32()),
        ("problem_key", pa.dictionary(pa.int32(), pa.string())),
        ("rule", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""``rule`` is empty for a pair that can run, else the name of the first rule that refuses it."""


def table(problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, wave_size: int) -> pa.Table:
    """Return one row a pair of the same dimensionality, by problem and then by candidate, in the given orders."""
    verdicts = check(problems, candidates, variant, wave_size=wave_size).astype(np.int32)
    names = [SUPPORTED, *(rule.name for rule in RULES), NOT_BUILT]
    verdicts[:, (candidates["build_status"] != "ok").to_numpy()] = len(names) - 1
    same = problems["ndim"].to_numpy()[:, None] == candidates["ndim"].to_numpy()[None, :]
    problem, candidate = (index.astype(np.int32) for index in np.nonzero(same))
    return pa.table(
        [
            _dictionary(candidate, candidates["kernel_id"].tolist()),
            pa.array(candidates["split_k"].to_numpy(np.int32)[candidate]),
            _dictionary(problem, problems["problem_key"].tolist()),
            _dictionary(verdicts[same], names),
        ],
        schema=SCHEMA,
    )


def supported(pairs: pa.Table) -> pa.ChunkedArray:
    """Return which rows of a support table are pairs that can run."""
    return pc.equal(pairs["rule"].cast(pa.string()), SUPPORTED)


def _dictionary(index: np.ndarray, values: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(values, pa.string()))
