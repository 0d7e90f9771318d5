"""CSV files of others as tables of text."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tileseer.core.errors import UserError, shown
from tileseer.core.reading import LARGEST_TABLE, read_bytes, require_text, utf8_text

FIRST_LINE = 2
"""Line of the first row of a CSV with a header."""
MOST_COLUMNS, MOST_CELLS = 1000, 20_000_000


def read_csv(path: Path, needed: Sequence[str] = ()) -> pd.DataFrame:
    """Return a CSV as text columns; ``UserError`` if it cannot be read, is empty, too large or no table.

    ``needed``: columns to name where the first line is no header. A row has as many fields as the header.
    """
    content = read_bytes(path, LARGEST_TABLE)
    if content.count(b",") + content.count(b"\n") > MOST_CELLS:
        raise UserError(f"{path}: has more than {MOST_CELLS:,} cells; split it")
    require_text(path, content)
    if b"\0" in content.partition(b"\n")[0] or max(line.count(b",") for line in content.split(b"\n")) >= MOST_COLUMNS:
        raise UserError(f"{path}: is no CSV file with a header of at most {MOST_COLUMNS} columns, in plain text")
    text = utf8_text(path, content, "utf-8-sig")
    head = text.lstrip().partition("\n")[0]
    if "," not in head and (sign := next((one for one in ";\t" if one in head), "")):
        raise UserError(f"{path}: its columns are separated by {sign!r}; write commas")
    rows = csv.reader(text.split("\n"), skipinitialspace=True, strict=True)
    try:
        lines = [(line, row) for line, row in enumerate(rows, 1) if row]
    except csv.Error as error:
        raise UserError(f"{path}: is no CSV file: {error}") from error
    if not lines:
        raise UserError(f"{path}: is no CSV file with a header: it is empty")
    header = [name.strip() for name in lines[0][1]]
    number = next((name for name in header if re.fullmatch(r"[0-9]+(\.[0-9]*)?", name)), "")
    if number or (needed and set(needed).isdisjoint(header)):
        such = f" with the columns {','.join(needed)}" if needed else ""
        way = f"write a header{such} above it" if number else f"write a header{such}"
        raise UserError(f"{path}, line 1: {shown(number or header[0])} names no column; {way}")
    if twice := next((name for place, name in enumerate(header) if name and name in header[:place]), ""):
        raise UserError(f"{path}: the column {shown(twice)} appears twice; remove one of the two")
    if len(lines) == 1:
        raise UserError(f"{path}: there is no row below the header; line 1 is taken for one: {shown(','.join(header))}")
    for line, row in lines:
        if len(row) != len(header):
            other = next((f"; {sign!r} separates them, and commas the header" for sign in ";\t" if sign in row[0]), "")
            raise UserError(f"{path}, line {line}: {len(row)} fields, but the header has {len(header)}{other}")
    names = [name or f"column {place}" for place, name in enumerate(header)]
    return pd.DataFrame([row for _, row in lines[1:]], columns=names, dtype=str)
