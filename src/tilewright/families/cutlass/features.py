"""Learning features of CUTLASS candidates: the shared ones where fields mean the same, and what only they have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tilewright.families.cutlass.kernel import GROUPS
from tilewright.feature_table import Feature, raw

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
    columns = {str(name): v.astype(np.float64) for name, v in numbers.items() if v.dtype.kind in "biuf"}
    columns["analytic"] = (candidates["iterator"] == "analytic").to_numpy(np.float64)
    columns["any_stride"] = (candidates["strides"] == "strided").to_numpy(np.float64)
    code = {mode: float(position) for position, mode in enumerate(GROUPS)}
    columns["group_mode"] = candidates["group_mode"].map(code).to_numpy(np.float64)
    return columns | {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}
