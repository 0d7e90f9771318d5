"""What a feature set is: a table of features by kind, and how the columns of a pair are gathered.

A feature belongs to the problem, to the candidate, or to the pair of them. Problem and candidate columns are
computed once a row of their table and gathered; only pair features cost time for every pair.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.problems.operation import Operation

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Feature:
    """One column: its name, unit, meaning (the formula, in words), and how it is computed."""

    name: str
    unit: str
    meaning: str
    values: Callable[..., np.ndarray]
    categorical: bool = False


class PairColumns:
    """Columns of n (problem, candidate) pairs, gathered from the two tables, each only once a feature asks for it."""

    def __init__(
        self,
        problems: Columns,
        candidates: Columns,
        problem_index: np.ndarray,
        candidate_index: np.ndarray,
        compute_units: int,
    ) -> None:
        self._tables = (problems, candidates)
        self._index = (problem_index, candidate_index)
        self._gathered: dict[tuple[int, str], np.ndarray] = {}
        self.compute_units = compute_units

    def _gather(self, kind: int, name: str) -> np.ndarray:
        if (kind, name) not in self._gathered:
            self._gathered[kind, name] = self._tables[kind][name].take(self._index[kind])
        return self._gathered[kind, name]

    def problem(self, name: str) -> np.ndarray:
        """Column ``name`` of the problem of each pair."""
        return self._gather(0, name)

    def candidate(self, name: str) -> np.ndarray:
        """Column ``name`` of the candidate of each pair."""
        return self._gather(1, name)


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
    pairs: type[PairColumns]
    """Gathers those columns for pair features."""
    dtype: type[np.floating] = np.float32
    """Precision of pair features and of the matrix."""
    order: tuple[str, ...] = ()
    """Names in matrix order; by default problem, candidate, pair."""

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
    """What reads a table column as it is."""
    return lambda columns: columns[name]


def raw(unit: str, **meanings: str) -> tuple[Feature, ...]:
    """Features that are a table column as it is."""
    return tuple(Feature(name, unit, meaning, column(name)) for name, meaning in meanings.items())


CODE = (
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
