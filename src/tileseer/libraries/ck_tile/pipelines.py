"""The table of GEMM pipelines: one row a pipeline. docs/CONTRIBUTING.md says what else a new one needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


@dataclass(frozen=True)
class Pipeline:
    """What follows from the pipeline alone; ``by_buffering`` is 1 block a CU with two LDS buffers, else 2."""

    blocks_per_cu: Literal[1, 2, "by_buffering"] = "by_buffering"
    always_double_lds: bool = False
    """Whether it has two LDS buffers, one filled while the other is read, whatever ``double_smem_buffer`` says."""


# The order is that of features and of models that were trained: a new row comes last.
PIPELINE_FACTS: dict[str, Pipeline] = {
    "basic_v1": Pipeline(blocks_per_cu=2),
    "basic_v2": Pipeline(blocks_per_cu=2),
    "compv1": Pipeline(blocks_per_cu=2),
    "compv2": Pipeline(blocks_per_cu=2),
    "compv3": Pipeline(),
    "compv4": Pipeline(blocks_per_cu=1, always_double_lds=True),
    "compv5": Pipeline(),
    "compv6": Pipeline(),
    "mem": Pipeline(),
    "comp_async": Pipeline(blocks_per_cu=1, always_double_lds=True),
    "basic_async_v1": Pipeline(blocks_per_cu=2),
    "wavelet": Pipeline(blocks_per_cu=2),
}
ALWAYS_DOUBLE_LDS = tuple(name for name, row in PIPELINE_FACTS.items() if row.always_double_lds)
TWO_BLOCK_PIPELINES = tuple(name for name, row in PIPELINE_FACTS.items() if row.blocks_per_cu == 2)


def double_lds(candidates: pd.DataFrame) -> np.ndarray:
    """Return whether each candidate keeps two LDS buffers, bool [Q]."""
    forced = candidates["pipeline"].isin(ALWAYS_DOUBLE_LDS).to_numpy()
    return forced | candidates["double_smem_buffer"].to_numpy(bool)
