"""What other libraries need for the problems of a recording: the times that it has beside those of its candidates."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tileseer.core import parquet
from tileseer.core.errors import UserError

CUDNN = "cudnn.csv"
"""By operation: the times of cuDNN."""
CHOICES = "rivals.parquet"
"""By operation: the times of what cuDNN and PyTorch choose."""
LIBRARIES = {
    "cuDNN": "median_us",
    "cuDNN's first plan": "first_us",
    "PyTorch's default": "torch_us",
    "PyTorch's benchmark mode": "torch_benchmark_us",
}
"""What is compared with, and its column in the file that has it."""


def read_library_times(files: Sequence[Path]) -> pd.DataFrame:
    """Microseconds of ``LIBRARIES`` by problem key; a column for each that ``files`` have times of.

    ``files``: ``CUDNN``, ``CHOICES`` and the ``problems.parquet`` beside it, each only where the recording has it.
    """
    by_name = {path.name: path for path in files}
    tables = []
    if CUDNN in by_name:
        tables.append(_cudnn_times(by_name[CUDNN]))
    if CHOICES in by_name:
        tables.append(_chosen_times(by_name[CHOICES]))
    if not tables:
        return pd.DataFrame(index=pd.Index([], name="problem_key"))
    return pd.concat(tables, axis=1)


def _cudnn_times(path: Path) -> pd.DataFrame:
    try:
        times = pd.read_csv(path, dtype={"problem_key": str}).dropna(subset="median_us").set_index("problem_key")
        return pd.DataFrame({"cuDNN": times["median_us"].astype(float)})
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: needs the columns problem_key and median_us ({error}); fetch it again") from error


def _chosen_times(path: Path) -> pd.DataFrame:
    choices, problems = parquet.read_table(path), parquet.read_table(path.with_name("problems.parquet"))
    keys = problems["problem_key"].to_numpy()[choices["problem"].to_numpy()]
    names = {column: name for name, column in LIBRARIES.items() if column in choices.column_names}
    return choices.select(list(names)).to_pandas().rename(columns=names).set_index(pd.Index(keys, name="problem_key"))
