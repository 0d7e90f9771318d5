"""Features of (problem, candidate) pairs: the one definition, used for training and for selection alike."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, nearest, shown
from tileseer.core.places import find_file
from tileseer.facts.hardware import Hardware, read_products
from tileseer.libraries import registry
from tileseer.libraries.features.table import CODE_FEATURES, Columns, FeatureSet
from tileseer.libraries.reference_features import REFERENCE
from tileseer.problems.operation import Operation
from tileseer.problems.problem import columns_of_frame

CODE_COLUMNS = tuple(feature.name for feature in CODE_FEATURES)
"""Columns of candidates that only a compiler knows."""
PAIRS_AT_ONCE = 8192
"""Pairs evaluated at a time: about thirty float32 temporaries of this length stay in the second-level cache."""
UNKNOWN = -1.0
"""Value of what no build has said."""


def feature_sets() -> dict[str, FeatureSet]:
    """Return the feature sets of all libraries, by the name that a configuration gives (``model.features``)."""
    own = {name: chosen for library in registry.installed() for name, chosen in library.features.items()}
    return own | {"reference": REFERENCE}


def feature_set(name: str) -> FeatureSet:
    """Return the feature set called ``name``; a ``UserError`` lists all names."""
    known = feature_sets()
    if name not in known:
        raise UserError(f"feature set {name!r} is unknown; use one of {', '.join(known)}")
    return known[name]


def fitting(name: str, candidates: pd.DataFrame, problems: Container[str] = ()) -> str:
    """Return the feature set to train with; ``problems`` are the columns of their table.

    That with the code's features if there is one and a compiler described the candidates, that with the layout if the
    problems have several.
    """
    if "layout" in problems:
        return feature_set(name).with_layout or name
    described = CODE_COLUMNS[0] in candidates and candidates[list(CODE_COLUMNS)].notna().any(axis=None)
    return (feature_set(name).with_code if described else "") or name


@dataclass(frozen=True, eq=False)
class Features:
    """Some features of a set on one GPU."""

    set: FeatureSet
    gpu: Hardware
    names: tuple[str, ...]
    """Columns of the matrix."""

    @classmethod
    def of(cls, name: str, gpu: Hardware, names: Sequence[str] | None = None) -> Self:
        """Return the features ``names`` of the set ``name``, by default all; ``UserError`` for others."""
        if not isinstance(gpu, Hardware):
            known = read_products(table := find_file(Path("config/hardware.yaml")))
            near = next((name for word in str(gpu).split() if (name := nearest(word, known))), next(iter(known)))
            call = f"tileseer.facts.hardware.read_hardware({str(table)!r}, {near!r})"
            raise UserError(f"gpu is {shown(gpu)}; give one: {call}; there are {', '.join(known)}")
        chosen = feature_set(name)
        unknown = sorted(set(names or ()) - set(chosen.names))
        if unknown:
            raise UserError(f"feature {unknown[0]!r} is not in feature set {name!r}")
        if twice := next((one for one in names or () if list(names or ()).count(one) > 1), None):
            raise UserError(f"feature {twice!r} is given twice; leave one out")
        return cls(chosen, gpu, chosen.names if names is None else tuple(names))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name of the set and not its formulas, which are functions: the reader has it too."""
        name = next(name for name, known in feature_sets().items() if known is self.set)
        return Features.of, (name, self.gpu, self.names)

    @property
    def categorical(self) -> list[str]:
        """Those whose values are codes without an order."""
        return [name for name in self.names if name in self.set.categorical]

    def matrix(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray
    ) -> np.ndarray:
        """Return the features of n pairs, [n, F] of the set's ``dtype``, stored by columns, as LightGBM reads it.

        ``problem`` and ``candidate`` (int [n]) are rows of the two tables. A row depends on its own pair only, never
        on which other pairs are requested. ``UserError`` for mixed directions, and for what is no finite number.
        """
        made = self.gather(self.problem_columns(problems), self.candidate_columns(candidates), problem, candidate)
        if (strange := ~np.isfinite(made).all(axis=0)).any():
            name = self.names[int(strange.argmax())]
            raise UserError(f"feature {name}: the formula gives infinity or no number for some pairs")
        return made

    def problem_columns(self, problems: pd.DataFrame) -> Columns:
        """Return what the features read of problems of one direction and data type, float64 [P] by name."""
        operation = _operation(problems)
        return self.set.problem_columns(columns_of_frame(problems), operation, self.gpu)

    def candidate_columns(self, candidates: pd.DataFrame) -> Columns:
        """Return what the features read of candidates, float64 [Q] by name, ``UNKNOWN`` for NaN: trees only compare."""
        columns = self.set.candidate_columns(candidates, self.gpu)
        return {name: np.nan_to_num(values, nan=UNKNOWN) for name, values in columns.items()}

    def gather(self, problems: Columns, candidates: Columns, problem: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """Return ``matrix`` from the columns of problems and candidates, to make once for several matrices."""
        dtype, row = self.set.dtype, {name: position for position, name in enumerate(self.names)}
        result = np.empty((len(row), len(problem)), dtype)
        fixed = [
            (row[feature.name], np.asarray(feature.of(columns, len(next(iter(columns.values())))), dtype), kind)
            for kind, (kinds, columns) in enumerate(((self.set.problem, problems), (self.set.candidate, candidates)))
            for feature in kinds
            if feature.name in row
        ]
        of_pairs = [(row[feature.name], feature) for feature in self.set.pair if feature.name in row]
        tables = _as(problems, dtype), _as(candidates, dtype)
        for start in range(0, len(problem), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            index = (problem[part].astype(np.intp), candidate[part].astype(np.intp))
            for target, values, kind in fixed:
                # Straight into the matrix: the mode that checks the rows would gather into a buffer and copy.
                values.take(index[kind], out=result[target, part], mode="clip")
            if of_pairs:
                pairs = self.set.pairs((tables[0], index[0]), (tables[1], index[1]), self.gpu.compute_units)
            for target, feature in of_pairs:
                result[target, part] = feature.of(pairs, len(index[0]))
        return result.T


def _operation(problems: pd.DataFrame) -> Operation:
    """Return the direction and data type of problems; ``UserError`` where there are several."""
    if not {"variant", "N"} <= {*problems}:
        raise UserError("problems: is no table of problems; give that first, then the one of candidates")
    kinds = sorted({*zip(problems["variant"], problems["dtype"], strict=True)})
    if len(kinds) != 1:
        raise UserError(f"features: one variant and dtype at a time, not {kinds}; split the table")
    return Operation(*kinds[0])


def _as(columns: Columns, dtype: type[np.floating]) -> Mapping[str, np.ndarray]:
    return {name: np.asarray(values, dtype) for name, values in columns.items()}
