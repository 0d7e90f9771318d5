"""The table of GEMM pipelines: one row a pipeline. docs/CONTRIBUTING.md says what else a new one needs."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Pipeline:
    """What follows from the pipeline alone; ``by_buffering`` is 1 block a CU with two LDS buffers, else 2."""

    blocks_per_cu: Literal[1, 2, "by_buffering"] = "by_buffering"


# The order is that of features and of models that were trained: a new row comes last.
TABLE: dict[str, Pipeline] = {
    "basic_v1": Pipeline(blocks_per_cu=2),
    "basic_v2": Pipeline(blocks_per_cu=2),
    "compv1": Pipeline(blocks_per_cu=2),
    "compv2": Pipeline(blocks_per_cu=2),
    "compv3": Pipeline(),
    "compv4": Pipeline(blocks_per_cu=1),
    "compv5": Pipeline(),
    "compv6": Pipeline(),
    "mem": Pipeline(),
    "comp_async": Pipeline(blocks_per_cu=1),
    "basic_async_v1": Pipeline(blocks_per_cu=2),
    "wavelet": Pipeline(blocks_per_cu=2),
}
