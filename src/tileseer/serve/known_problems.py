"""The table of measured problems: where exactly a problem was measured, the fastest candidate needs no model."""

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.dataset.dataset import Dataset
from tileseer.problems.problem import DIMS

SCHEMA = pa.schema(
    [
        *((name, pa.int32()) for name in DIMS),
        ("candidate", pa.string()),
        ("row", pa.int32()),
        ("tflops", pa.float64()),
        ("device_kind", pa.string()),
    ]
)
"""One row a problem: its fastest candidate, that one's row in candidates.parquet, and where the time came from."""


def known_problems_table(measurements: Dataset, pool: pd.DataFrame, achieved: np.ndarray) -> pa.Table:
    """The problems on which a candidate of the pool ran, in the order of their dimensions.

    ``achieved`` [P, Q]: measured efficiency of the pool's candidates, 0 where there is none. The winner of single
    timings is a little lucky: its TFLOPS are what was measured, not a promise.
    """
    dims = measurements.problems[list(DIMS)].to_numpy(np.int64)
    order = np.lexsort(dims.T[::-1])
    rows = order[achieved[order].max(axis=1, initial=0.0) > 0]
    best = achieved[rows].argmax(axis=1)
    columns = {name: dims[rows, i].astype(np.int32) for i, name in enumerate(DIMS)}
    return pa.table(
        {
            **columns,
            "candidate": pool["candidate"].to_numpy()[best],
            "row": best.astype(np.int32),
            "tflops": measurements.best_tflops[rows] * achieved[rows, best],
            "device_kind": [measurements.device_kind] * len(rows),
        },
        schema=SCHEMA,
    )
