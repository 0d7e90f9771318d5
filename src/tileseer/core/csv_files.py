"""CSV files of others as tables of text."""

import io
from pathlib import Path

import pandas as pd

from tileseer.core.errors import UserError, shown
from tileseer.core.reading import LARGEST_TABLE, read_bytes

FIRST_LINE = 2
"""Line of the first row of a CSV with a header."""
MOST_COLUMNS, MOST_CELLS = 1000, 20_000_000


def read_csv(path: Path) -> pd.DataFrame:
    """Return a CSV as text columns; ``UserError`` if it cannot be read, is empty, too large or no table."""
    content = read_bytes(path, LARGEST_TABLE)
    if content.count(b",") + content.count(b"\n") > MOST_CELLS:
        raise UserError(f"{path}: has more than {MOST_CELLS:,} cells; split it")
    if b"\0" in content.partition(b"\n")[0] or max(line.count(b",") for line in content.split(b"\n")) >= MOST_COLUMNS:
        raise UserError(f"{path}: is no CSV file with a header of at most {MOST_COLUMNS} columns, in plain text")
    try:
        first = pd.read_csv(
            io.BytesIO(content), header=None, dtype=str, keep_default_na=False, skipinitialspace=True, nrows=1
        )
        header = first.iloc[0].str.strip()
        table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, skipinitialspace=True).fillna("")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        why = " ".join(str(error).rpartition("C error: ")[2].split())
        raise UserError(f"{path}: is no CSV file with a header: {why}") from error
    if len(twice := header[header.duplicated() & (header != "")]):
        raise UserError(f"{path}: the column {shown(twice.iloc[0])} appears twice; remove one of the two")
    table.columns = [str(name).strip().lstrip("\ufeff") for name in table.columns]
    if not isinstance(table.index, pd.RangeIndex):
        raise UserError(f"{path}: line {FIRST_LINE} has more fields than the header")
    if not len(table):
        raise UserError(f"{path}: there is no row below the header")
    return table
