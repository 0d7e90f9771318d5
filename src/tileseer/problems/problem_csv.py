"""Problems from a CSV with the reference's columns."""

from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, shown
from tileseer.problems.problem import DIMS, INT32_MAX, Problem

REQUIRED = ("N", "C", "K", "Hi", "Wi", "Y", "X")
DEFAULTS = {name: 0 if name.startswith("pad") else 1 for name in DIMS if name not in REQUIRED}
"""What a column means that is absent or empty: one group, no depth, stride 1, no padding, no dilation."""
FLAT = {"stride_d": 1, "pad_d": 0, "dilation_d": 1}
"""Depth columns that mean nothing without depth: the reference's library calls a problem 3D by Di and Z alone."""
FIRST_LINE = 2
"""Line of the first row of a CSV with a header."""


def read_csv(path: Path) -> pd.DataFrame:
    """A CSV as text columns; ``UserError`` if it is missing, empty or no table."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        why = " ".join(str(error).rpartition("C error: ")[2].split())
        raise UserError(f"{path}: is no CSV file with a header: {why}") from error
    table.columns = [str(name).strip().lstrip("\ufeff") for name in table.columns]
    if not len(table):
        raise UserError(f"{path}: there is no row below the header")
    return table


def dims_of_rows(path: Path, table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The 19 dimensions of each row, int64, and remarks on what was assumed.

    ``REQUIRED`` columns have to be there; the others have ``DEFAULTS``. A row without depth (``Di`` and ``Z`` 1) is
    2D whatever its other depth columns say. ``UserError`` names file, line, column and value.
    """
    missing = [name for name in REQUIRED if name not in table]
    if missing:
        raise UserError(f"{path}: column {missing[0]} is missing; needed: {', '.join(REQUIRED)}")
    remarks = []
    absent = [name for name in DEFAULTS if name not in table]
    if absent:
        said = ", ".join(f"{name}={DEFAULTS[name]}" for name in absent)
        remarks.append(f"{path}: columns that are absent have their defaults: {said}")
    dims = pd.DataFrame({name: _numbers(path, table, name) for name in DIMS})
    flat = (dims["Di"] == 1) & (dims["Z"] == 1)
    odd = flat & pd.concat([dims[name] != value for name, value in FLAT.items()], axis=1).any(axis=1)
    if odd.any():
        dims.loc[odd, list(FLAT)] = list(FLAT.values())
        remarks.append(
            f"{path}: {int(odd.sum())} rows without depth (Di = Z = 1) have a depth stride, padding or dilation: "
            "taken as 2D"
        )
    return dims, remarks


def check_problems(path: Path, dims: pd.DataFrame, variant: str, dtype: str) -> None:
    """Raise ``UserError`` with file and line for the first row that is no convolution."""
    distinct = dims.drop_duplicates()
    for line, row in zip(distinct.index, distinct.itertuples(index=False), strict=True):
        try:
            Problem.from_dims(variant, dtype, **dict(zip(DIMS, map(int, row), strict=True)))
        except UserError as error:
            raise UserError(f"{path}, line {line + FIRST_LINE}: {error}") from error


def _numbers(path: Path, table: pd.DataFrame, name: str) -> np.ndarray:
    if name not in table:
        return np.full(len(table), DEFAULTS[name], np.int64)
    texts = table[name].str.strip()
    if name in DEFAULTS:
        texts = texts.where(texts != "", str(DEFAULTS[name]))
    # pandas writes integer columns with gaps as 8.0.
    whole = texts.str.fullmatch(r"\d{1,10}(\.0*)?")
    if not whole.all():
        row = int(np.argmin(whole.to_numpy()))
        raise UserError(
            f"{path}, line {row + FIRST_LINE}: {name} is {shown(texts.iloc[row])}; it must be a whole number"
        )
    values = texts.str.partition(".")[0].astype(np.int64).to_numpy()
    if (values > INT32_MAX).any():
        row = int(np.argmax(values > INT32_MAX))
        raise UserError(f"{path}, line {row + FIRST_LINE}: {name} is {values[row]}; at most {INT32_MAX}")
    return values
