"""CSV tables with problems: what is read of each row is whole numbers, and each mistake has its line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core.csv_files import FIRST_LINE
from tileseer.core.errors import UserError, shown
from tileseer.problems.problem import DIMS, INT32_MAX, LEAST, OTHER_NAMES, Problem, meant, wrong_rows

REQUIRED_DIMS = ("N", "C", "K", "Hi", "Wi", "Y", "X")
DEFAULT_DIMS = {name: value for name, value in LEAST.items() if name not in REQUIRED_DIMS}
"""What a column means that is absent or empty: one group, no depth, stride 1, no padding, no dilation."""
USUAL = frozenset(f"{name}={value}" for name, value in DEFAULT_DIMS.items() if name != "G")
"""Dimensions that a reader expects."""
DIMS_WITHOUT_DEPTH = {"stride_d": 1, "pad_d": 0, "dilation_d": 1}
"""Depth columns that mean nothing without depth: the reference's library calls a problem 3D by Di and Z alone."""


def without_defaults(problem: str) -> str:
    """Return the dimensions of a problem, ``NAME=VALUE`` with blanks between, that are not ``USUAL``."""
    return " ".join(dimension for dimension in problem.split() if dimension not in USUAL)


def dims_of_rows(path: Path, table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the 19 dimensions of each row, int64, and remarks on what was assumed.

    ``REQUIRED_DIMS`` have to be there, others have ``DEFAULT_DIMS``. A row without depth (``Di`` and ``Z`` 1) is
    2D whatever its other depth columns say. ``UserError`` names file, line, column and value.
    """
    missing = [name for name in REQUIRED_DIMS if name not in table]
    if missing:
        called = {OTHER_NAMES.get(name.upper(), name).lower(): name for name in map(str, table) if name not in DIMS}
        parts = [f"{called[name.lower()]} is written {name}" for name in missing if name.lower() in called]
        if absent := [name for name in missing if name.lower() not in called]:
            parts.append(f"column {', '.join(absent)} is missing; needed: {', '.join(REQUIRED_DIMS)}")
        raise UserError(f"{path}, line 1: {'; '.join(parts)}")
    remarks = []
    absent = [name for name in DEFAULT_DIMS if name not in table]
    for name in sorted(set(table.columns) - set(DIMS)):
        # What a dimension is called elsewhere: left out in silence it would be another convolution.
        if advice := meant(name, 0.85, absent):
            raise UserError(f"{path}: unknown column {shown(name)}{advice}")
    if absent:
        said = ", ".join(f"{name}={DEFAULT_DIMS[name]}" for name in absent)
        remarks.append(f"{path}: columns that are absent have their defaults: {said}")
    for name in (name for name in DEFAULT_DIMS if name in table):
        if (empty := table[name].str.strip() == "").any():
            first = int(empty.argmax()) + FIRST_LINE
            count = int(empty.sum())
            remarks.append(f"{path}, line {first}: {name} is empty, taken as {DEFAULT_DIMS[name]} ({count:,} rows)")
    texts = table.assign(**dict.fromkeys(absent, "")).replace(
        {name: {"": str(DEFAULT_DIMS[name])} for name in DEFAULT_DIMS}
    )
    dims = pd.DataFrame({name: whole_numbers(path, texts[name], LEAST[name]) for name in DIMS})
    flat = (dims["Di"] == 1) & (dims["Z"] == 1)
    odd = flat & pd.concat([dims[name] != value for name, value in DIMS_WITHOUT_DEPTH.items()], axis=1).any(axis=1)
    if odd.any():
        dims.loc[odd, list(DIMS_WITHOUT_DEPTH)] = list(DIMS_WITHOUT_DEPTH.values())
        remarks.append(
            f"{path}: {int(odd.sum())} rows without depth (Di = Z = 1) have a depth stride, padding or dilation: "
            "taken as 2D"
        )
    return dims, remarks


def check_problems(path: Path, dims: pd.DataFrame) -> None:
    """Raise ``UserError`` with file and line for the first row that is no convolution."""
    distinct = dims.drop_duplicates()
    if not wrong_rows(distinct[list(DIMS)].to_numpy()).any():
        return
    for line, row in zip(distinct.index, distinct.itertuples(index=False), strict=True):
        try:
            Problem.from_dims("forward", "bf16", **dict(zip(DIMS, map(int, row), strict=True)))
        except UserError as error:
            raise UserError(f"{path}, line {line + FIRST_LINE}: {error}") from error


def whole_numbers(path: Path, texts: pd.Series, least: int = 0) -> np.ndarray:
    """Return a column of a CSV as int64; ``UserError`` for the first that is no whole number from ``least`` on."""
    codes, distinct = pd.factorize(texts)
    words = pd.Series(distinct).str.strip()
    # pandas writes integer columns with gaps as 8.0.
    right = words.str.fullmatch(r"[0-9]{1,10}(\.0*)?").to_numpy(bool)
    numbers = words.where(right, "-1").astype(np.float64).astype(np.int64).to_numpy()
    right = right & (numbers >= least) & (numbers <= INT32_MAX)
    require_cells(path, texts, pd.Series(right[codes]), f"it must be a whole number from {least} to {INT32_MAX}")
    return numbers[codes]


def of_distinct(texts: pd.Series, function: Callable[[pd.Series], pd.Series]) -> pd.Series:
    """Return what ``function`` makes of a column whose texts repeat; it gets each distinct text once."""
    codes, distinct = pd.factorize(texts)
    return pd.Series(function(pd.Series(distinct)).to_numpy()[codes], texts.index, name=texts.name)


def require_cells(path: Path, texts: pd.Series, right: pd.Series, otherwise: str) -> None:
    """Raise ``UserError`` with file, line, column and value for the first text that is not ``right``."""
    if not right.all():
        row = int(np.argmin(right.to_numpy()))
        raise UserError(f"{path}, line {row + FIRST_LINE}: {texts.name} is {shown(texts.iloc[row])}; {otherwise}")
