"""What cuDNN and PyTorch need for the problems of a recording of other kernels, which has their times beside it."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tileseer.core import parquet
from tileseer.core.csv_files import read_csv
from tileseer.core.errors import UserError

CUDNN_FILE = "cudnn.csv"
"""By operation: the times of cuDNN."""
CHOICES_FILE = "rivals.parquet"
"""By operation: the times of what cuDNN and PyTorch choose."""
COLUMN_OF_LIBRARY = {
    "cuDNN": "median_us",
    "cuDNN's first plan": "first_us",
    "PyTorch's default": "torch_us",
    "PyTorch's benchmark mode": "torch_benchmark_us",
}
"""What is compared with, and its column in the file that has it."""


def read_times(files: Sequence[Path]) -> pd.DataFrame:
    """Read the microseconds of other libraries by problem key; a column for each that ``files`` have times of.

    ``files``: ``CUDNN_FILE``, ``CHOICES_FILE`` and the ``problems.parquet`` beside it, where the recording has them.
    """
    by_name = {path.name: path for path in files}
    tables = []
    if CUDNN_FILE in by_name:
        tables.append(_cudnn_times(by_name[CUDNN_FILE]))
    if CHOICES_FILE in by_name:
        tables.append(_chosen_times(by_name[CHOICES_FILE]))
    if not tables:
        return pd.DataFrame(index=pd.Index([], name="problem_key"))
    return pd.concat(tables, axis=1)


def _cudnn_times(path: Path) -> pd.DataFrame:
    times = read_csv(path)
    try:
        times = times[times["median_us"] != ""].set_index("problem_key")
        return pd.DataFrame({"cuDNN": times["median_us"].astype(float)})
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: needs the columns problem_key and median_us ({error}); fetch it again") from error


def _chosen_times(path: Path) -> pd.DataFrame:
    choices, problems = parquet.read_table(path), parquet.read_table(path.with_name("problems.parquet"))
    keys = problems["problem_key"].to_numpy()[choices["problem"].to_numpy()]
    names = {column: name for name, column in COLUMN_OF_LIBRARY.items() if column in choices.column_names}
    return choices.select(list(names)).to_pandas().rename(columns=names).set_index(pd.Index(keys, name="problem_key"))
