"""Learning features of CUTLASS candidates: the shared ones where fields mean the same, and what only they have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tileseer.families.cutlass.kernel import GROUPS, ITERATORS
from tileseer.families.feature_table import Feature, raw

NOT_SHARED = frozenset(
    (
        "num_wave_groups", "num_groups_to_merge", "double_smem_buffer", "two_stage", "explicit_gemm", "split_image",
        "streamk_persistent", "pipeline", "specialization", "streamk", "interwave", "cshuffle", "pads",
    )
)  # fmt: skip
"""Candidate features of CK Tile that a CUTLASS kernel has no field for."""

OWN = (
    *raw("1", stages="depth of the copy pipeline", swizzle="tiles of n that neighbouring blocks share"),
    *raw("1", analytic="the iterator computes every address anew, 0 or 1"),
    *raw("1", any_stride="an input gradient that is written for every stride, 0 or 1"),
    Feature("group_mode", "code", "position in kernel.GROUPS", lambda c: c["group_mode"], categorical=True),
)


def candidate_features(shared: Sequence[Feature]) -> tuple[Feature, ...]:
    """Return the candidate features of the family out of CK Tile's and its own."""
    return (*(feature for feature in shared if feature.name not in NOT_SHARED), *OWN)


def candidate_columns(candidates: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return what the features are made of, float64 [Q] by name; a group is a GEMM of its own, none are merged."""
    numbers = {name: values.to_numpy() for name, values in candidates.items()}
    columns: dict[str, np.ndarray]
    columns = {str(name): v.astype(np.float64) for name, v in numbers.items() if v.dtype.kind in "biuf"}
    columns["analytic"] = (candidates["iterator"] == "analytic").to_numpy(np.float64)
    columns["any_stride"] = (candidates["strides"] == "strided").to_numpy(np.float64)
    code = {mode: float(position) for position, mode in enumerate(GROUPS)}
    columns["group_mode"] = candidates["group_mode"].map(code).to_numpy(np.float64)
    return columns | {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}


REFERENCE_CODES = {
    f"{iterator}_s{stages}": len(ITERATORS) * stages + number
    for stages in range(1, 17)
    for number, iterator in enumerate(ITERATORS)
}
"""Codes of the main loops in the reference's one categorical feature, which has none for them: its trainer would give
every new main loop one of its own, and so do we."""


def in_reference_words(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the candidates with the fields that the reference's features are made of.

    Tiles mean the same. A main loop of several stages is double buffered; every kernel is scheduled within a wave and
    none splits the image. Warps, vectors, the swizzle, group modes and split-K have no place among the 97 features, in
    either family.
    """
    return candidates.assign(
        scheduler="intrawave", double_smem_buffer=candidates["stages"].to_numpy() > 1, split_image=False
    )
