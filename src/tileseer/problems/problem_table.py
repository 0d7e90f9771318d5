"""The table of problems that the problems stage writes: training and validation, never overlapping."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tileseer.core import parquet
from tileseer.problems.layers import NetworkRun
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, FIELDS, Problem

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("train", "validation")
SCHEMA = parquet.schema(
    [
        ("problem_key", pa.string()),
        ("layer_family", pa.string()),
        ("split", pa.string()),
        ("network", pa.string()),
        ("layer", pa.string()),
        *((field, pa.int32() if field in (*DIMS, "ndim") else pa.string()) for field in FIELDS),
    ]
)
"""``network`` names the network, ``design``, or the generator section; ``layer`` is empty for the last two."""


USES = parquet.schema(
    [
        ("problem_key", pa.string()),
        ("network", pa.string()),
        ("run", pa.string()),
        ("layer", pa.string()),
        ("occurrences", pa.int32()),
        ("flop_share", pa.float64()),
    ]
)
"""Which run of a network needs which problem: how often, and for which share of the run's FLOP in this direction."""


@dataclass(frozen=True)
class ProblemEntry:
    """A problem with where it comes from: a generator section, the design, or a network and its layer."""

    problem: Problem
    origin: str
    layer: str


def problem_table(training: Iterable[ProblemEntry], validation: Iterable[ProblemEntry]) -> pa.Table:
    """Return one row a problem, training first, each split in key order."""
    return _table(
        SCHEMA,
        (
            (e.problem.key, e.problem.layer_family, split, e.origin, e.layer, *map(vars(e.problem).get, FIELDS))
            for split, entries in zip(SPLITS, (training, validation), strict=True)
            for e in sorted(entries, key=lambda entry: entry.problem.key)
        ),
    )


def use_table(runs: Iterable[NetworkRun], operation: Operation) -> pa.Table:
    """Return one row a layer of each run."""
    layers = [(layer.problem_for(operation).key, run, layer) for run in runs for layer in run.layers]
    rows = ((key, run.network, run.run, layer.layer, layer.occurrences, run.share(layer)) for key, run, layer in layers)
    return _table(USES, sorted(rows))


def read_uses(path: Path | None) -> pd.DataFrame:
    """Read a file of ``use_table``; without one no network needs any problem."""
    return (USES.empty_table() if path is None else parquet.read_table(path, USES)).to_pandas()


def _table(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
