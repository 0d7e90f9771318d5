"""What a feature set is: a table of features by kind, and how the columns of a pair are gathered.

A feature belongs to the problem, to the candidate, or to the pair of them. Problem and candidate columns are
computed once a row of their table and gathered; only pair features cost time for every pair.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, listed, mistakes_of, shown
from tileseer.facts.hardware import Hardware
from tileseer.problems.operation import Operation

Columns = Mapping[str, np.ndarray]
Rows = tuple[Columns, np.ndarray]
"""Columns of a table, and the row of each pair."""


@dataclass(frozen=True)
class Feature:
    """One column: its name, unit, meaning (the formula, in words), and how it is computed."""

    name: str
    unit: str
    meaning: str
    values: Callable[..., np.ndarray]
    categorical: bool = False

    def __post_init__(self) -> None:
        if not str(self.name).isidentifier():
            raise UserError(f"feature {shown(self.name)}: the name comes first; give letters, digits and _")
        if not callable(self.values):
            raise UserError(f"feature {self.name}: the formula is {shown(self.values)}; give a function of the columns")

    def of(self, columns: Columns, rows: int) -> np.ndarray:
        """Return the values of rows with these columns; ``UserError`` if the formula fails or forgets a row."""
        with mistakes_of(f"feature {self.name}"):
            values = np.asarray(self.values(columns))
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise UserError(f"feature {self.name}: the formula gives {shown(values)}, not a number for each row")
        if len(values) != rows:
            raise UserError(f"feature {self.name}: the formula gives {len(values):,} values for {rows:,} rows")
        return values


class PairColumns(dict[str, Any]):
    """Columns of n (problem, candidate) pairs by name; those of the two tables are gathered when first read."""

    def __init__(self, problems: Rows, candidates: Rows, compute_units: int) -> None:
        super().__init__(compute_units=compute_units)
        self._tables = (problems, candidates)

    def __missing__(self, name: str) -> np.ndarray:
        columns, index = next((table for table in self._tables if name in table[0]), self._tables[1])
        self[name] = columns[name].take(index)
        return self[name]


@dataclass(frozen=True)
class FeatureSet:
    """Features by kind, and what they are computed from."""

    problem: tuple[Feature, ...]
    candidate: tuple[Feature, ...]
    pair: tuple[Feature, ...]
    problem_columns: Callable[[Columns, Operation, Hardware], dict[str, np.ndarray]]
    """From ``ndim`` and the dimensions, int64 [P] each: what problem and pair features are made of, float64 [P]."""
    candidate_columns: Callable[[pd.DataFrame, Hardware], dict[str, np.ndarray]]
    """Float64 [Q] by name: what candidate and pair features are made of."""
    add_pair_columns: Callable[[PairColumns], None] = lambda columns: None
    """Adds what several pair features read, [n] each."""
    dtype: type[np.floating] = np.float32
    """Precision of pair features and of the matrix."""
    order: tuple[str, ...] = ()
    """Names in matrix order; by default problem, candidate, pair."""
    with_code: str = ""
    """Name of the set that adds what only a compiler knows, if there is one."""
    with_layout: str = ""
    """Name of the set that distinguishes layouts, if there is one."""

    def __post_init__(self) -> None:
        such = "a tuple of features, such as (*OURS.problem, FEATURE)"
        kinds = [listed(kind, getattr(self, kind), Feature, such) for kind in ("problem", "candidate", "pair")]
        names = [feature.name for feature in chain.from_iterable(kinds)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(
                f"feature {twice} is twice in a feature set; give one of the two another name, or start Python anew "
                "where it was added before"
            )

    def pairs(self, problems: Rows, candidates: Rows, compute_units: int) -> PairColumns:
        """Return what pair features are made of."""
        columns = PairColumns(problems, candidates, compute_units)
        self.add_pair_columns(columns)
        return columns

    @property
    def every(self) -> tuple[Feature, ...]:
        """All features in matrix order."""
        features = {f.name: f for f in (*self.problem, *self.candidate, *self.pair)}
        return tuple(features[name] for name in self.order or features)

    @property
    def names(self) -> tuple[str, ...]:
        """Every feature's name, in matrix order."""
        return tuple(feature.name for feature in self.every)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Names of the features whose values are codes without an order."""
        return tuple(feature.name for feature in self.every if feature.categorical)


def column(name: str) -> Callable[[Columns], np.ndarray]:
    """Return a function that reads a table column as it is."""
    return lambda columns: columns[name]


def raw(unit: str, **meanings: str) -> tuple[Feature, ...]:
    """Return features that are a table column as it is."""
    return tuple(Feature(name, unit, meaning, column(name)) for name, meaning in meanings.items())


CODE_FEATURES = (
    Feature("agprs", "registers", "accumulation registers of a lane", column("agprs")),
    Feature("sgprs", "registers", "scalar registers of a wave", column("sgprs")),
    Feature("scratch_bytes", "B", "private memory of a lane", column("scratch_bytes")),
    Feature("vgpr_spills", "registers", "vector registers that did not fit", column("vgpr_spills")),
    Feature("code_bytes", "B", "machine code of the kernel", column("code_bytes")),
    *raw(
        "instructions",
        n_mfma="matrix instructions in the code; a loop counts once, here and below",
        n_buffer_loads="loads from global memory",
        n_buffer_stores="stores and atomics to global memory",
        n_lds_reads="reads of LDS",
        n_lds_writes="writes to LDS",
        n_barriers="barriers",
    ),
)
"""Features of candidates that only a compiler knows."""
