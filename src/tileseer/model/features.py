"""Features of (problem, candidate) pairs: the one definition, used for training and for selection alike."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError
from tileseer.families import registry
from tileseer.families.feature_table import CODE as CODE_FEATURES
from tileseer.families.feature_table import Columns, FeatureSet, only
from tileseer.gpu.hardware import Hardware
from tileseer.reference.reference_features import REFERENCE

CHUNK = 8192
"""Pairs evaluated at a time: about thirty float32 temporaries of this length stay in the second-level cache."""
UNKNOWN = -1.0
CODE = tuple(feature.name for feature in CODE_FEATURES)
"""Columns of candidates that only a compiler knows."""
DEFAULT = registry.FAMILIES[0].features


def feature_sets() -> dict[str, FeatureSet]:
    """Feature sets by the name that a configuration gives: those of every family, and the reference's."""
    own = {
        name: chosen for family in registry.FAMILIES for name, chosen in family.part("features").FEATURE_SETS.items()
    }
    return own | {"reference": REFERENCE}


def feature_set(name: str) -> FeatureSet:
    """The feature set called ``name``; a ``UserError`` lists the known ones."""
    known = feature_sets()
    if name not in known:
        raise UserError(f"feature set {name!r} is unknown; use one of {', '.join(known)}")
    return known[name]


def fitting(name: str, candidates: pd.DataFrame) -> str:
    """The feature set to train with: that with the code's features where there is one and a compiler described it."""
    larger = feature_set(name).with_code
    described = CODE[0] in candidates and candidates[list(CODE)].notna().any(axis=None)
    return larger if larger and described else name


def compute(
    problems: pd.DataFrame,
    candidates: pd.DataFrame,
    problem_index: np.ndarray,
    candidate_index: np.ndarray,
    hardware: Hardware,
    features: str = DEFAULT,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Features of n pairs, [n, F] of the set's ``dtype``, columns ``names`` (default: all, in its order).

    ``problem_index`` and ``candidate_index`` (int [n]) are rows of the two tables. A row's features depend on its
    own pair only, never on which other pairs are asked for. The array is stored by columns, which is how both the
    computation and LightGBM read it. ``UserError`` for an unknown feature name or mixed directions.
    """
    made_of = columns(problems, candidates, hardware, features)
    return matrix(*made_of, problem_index, candidate_index, hardware, features, names)


def columns(
    problems: pd.DataFrame, candidates: pd.DataFrame, hardware: Hardware, features: str = DEFAULT
) -> tuple[Columns, Columns]:
    """The set's problem and candidate columns, to make once for several matrices."""
    of_problems = problem_columns(problems, hardware, feature_set(features))
    return of_problems, candidate_columns(candidates, hardware, features)


def problem_columns(problems: pd.DataFrame, hardware: Hardware, chosen: FeatureSet) -> Columns:
    """The set's problem columns, of problems of one direction and data type."""
    dims = {name: problems[name].to_numpy(np.int64) for name in ("ndim", *DIMS)}
    return chosen.problem_columns(dims, Operation(only(problems, "variant"), only(problems, "dtype")), hardware)


def candidate_columns(candidates: pd.DataFrame, hardware: Hardware, features: str = DEFAULT) -> Columns:
    """The set's candidate columns; what no build said is ``UNKNOWN``, so that trees are plain comparisons."""
    columns = feature_set(features).candidate_columns(candidates, hardware)
    return {name: np.nan_to_num(values, nan=UNKNOWN) for name, values in columns.items()}


def of_candidates(candidates: pd.DataFrame, hardware: Hardware, features: str) -> dict[str, np.ndarray]:
    """The set's features of candidates alone, [Q] by name; ``KeyError`` with the column that the table lacks."""
    made_of = candidate_columns(candidates, hardware, features)
    return {feature.name: feature.values(made_of) for feature in feature_set(features).candidate}


def matrix(
    problems: Columns,
    candidates: Columns,
    problem_index: np.ndarray,
    candidate_index: np.ndarray,
    hardware: Hardware,
    features: str = DEFAULT,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """``compute`` from what ``columns`` gives."""
    chosen = feature_set(features)
    wanted = chosen.names if names is None else tuple(names)
    row = {name: position for position, name in enumerate(wanted)}
    unknown = sorted(set(wanted) - set(chosen.names))
    if unknown:
        raise UserError(f"feature {unknown[0]!r} is not in feature set {features!r}")
    _assert_rows(problem_index, problems)
    _assert_rows(candidate_index, candidates)
    tables = _as(problems, chosen.dtype), _as(candidates, chosen.dtype)
    result = np.empty((len(wanted), len(problem_index)), chosen.dtype)
    fixed = [
        (row[f.name], np.asarray(f.values(columns), chosen.dtype), kind)
        for kind, (kinds, columns) in enumerate(((chosen.problem, problems), (chosen.candidate, candidates)))
        for f in kinds
        if f.name in row
    ]
    pair = [(row[f.name], f.values) for f in chosen.pair if f.name in row]
    for start in range(0, len(problem_index), CHUNK):
        part = slice(start, start + CHUNK)
        index = (problem_index[part].astype(np.intp), candidate_index[part].astype(np.intp))
        for target, values, kind in fixed:
            # Straight into the matrix: the mode that checks the rows again would gather into a buffer and copy.
            values.take(index[kind], out=result[target, part], mode="clip")
        pairs = chosen.pairs(*tables, *index, hardware.compute_units)
        for target, value in pair:
            result[target, part] = value(pairs)
    return result.T


def _assert_rows(index: np.ndarray, columns: Columns) -> None:
    rows = len(next(iter(columns.values())))
    if len(index) and not 0 <= index.min() <= index.max() < rows:
        raise IndexError(f"features: rows {index.min()} to {index.max()} of a table of {rows}")


def _as(columns: Columns, dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values, dtype) for name, values in columns.items()}
