"""The table of problems that the problems stage writes: training and validation, never overlapping."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple

import pyarrow as pa

from tilewright.problem import DIMS, FIELDS
from tilewright.problem_sets import Entry

SPLITS = ("train", "validation")
SCHEMA = pa.schema(
    [
        ("problem_key", pa.string()),
        ("layer_family", pa.string()),
        ("split", pa.string()),
        ("network", pa.string()),
        ("layer", pa.string()),
        *((field, pa.int32() if field in (*DIMS, "ndim") else pa.string()) for field in FIELDS),
    ]
)
"""``network`` names the network, or for training the generator section; ``layer`` is empty for training."""


def table(training: Iterable[Entry], validation: Iterable[Entry]) -> pa.Table:
    """Return one row a problem, training first, each split in key order."""
    rows = []
    for split, entries in zip(SPLITS, (training, validation), strict=True):
        ordered = sorted(entries, key=lambda entry: entry.problem.key)
        rows += [
            (e.problem.key, e.problem.layer_family, split, e.origin, e.layer, *astuple(e.problem)) for e in ordered
        ]
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table([list(column) for column in columns], schema=SCHEMA)
