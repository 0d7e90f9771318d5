"""Which kernels keep two LDS buffers, so that one is filled while the other is read."""

import numpy as np
import pandas as pd

ALWAYS_DOUBLE_LDS = ("compv4", "comp_async")
"""Pipelines that have two buffers whatever ``double_smem_buffer`` says."""


def double_lds(candidates: pd.DataFrame) -> np.ndarray:
    """Whether each candidate keeps two LDS buffers, bool [Q]."""
    forced = candidates["pipeline"].isin(ALWAYS_DOUBLE_LDS).to_numpy()
    return forced | candidates["double_smem_buffer"].to_numpy(bool)
