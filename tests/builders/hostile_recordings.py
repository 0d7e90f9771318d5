"""A small recording, and recordings in which something else is in place of one of its values."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hostile_values
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE = "recording.json"
TABLES = ("kernels", "problems", "pairs")
CHANGES = ("value", "value", "value", "values", "drop", "rename", "null", "rows", "twice")
BEGIN = ("", "cudnn 91900", "gfx950", "x")
BREAK = ('"', '";', "\n", "\\", "*/", "\r", "??/\n", "\u2028", "\0", '")', "*/\n#", "\x1f")
END = ("", " inline const int evil = system(0); //", "#include <evil>", "\\")


def injected(draw: random.Random) -> str:
    """Return a text that is to leave a string or comment of C++."""
    return "".join(map(draw.choice, (BEGIN, BREAK, END)))


def value(draw: random.Random) -> Any:
    """Return what may be in place of any value."""
    text = "".join(chr(draw.choice((draw.randrange(128), draw.randrange(0x110000)))) for _ in range(draw.randrange(6)))
    number = draw.choice((draw.uniform(-1, 1) * 10.0 ** draw.randint(-320, 308), draw.randint(-(2**63), 2**63 - 1)))
    return draw.choice((draw.choice(hostile_values.VALUES), injected(draw), text, number))


def small(source: Path, operation: str, folder: Path, problems: int = 4, kernels: int = 24) -> None:
    """Copy the beginning of one operation of a recording, so that replaying it is quick."""
    (folder / operation).mkdir(parents=True)
    shutil.copy(source / FILE, folder)
    tables = {name: pq.read_table(source / operation / f"{name}.parquet") for name in TABLES}
    pairs = tables["pairs"]
    few = pairs.filter((np.asarray(pairs["problem"]) < problems) & (np.asarray(pairs["kernel"]) < kernels))
    tables = {"kernels": tables["kernels"][:kernels], "problems": tables["problems"][:problems], "pairs": few}
    for name, table in tables.items():
        pq.write_table(table, folder / operation / f"{name}.parquet")


def texts(folder: Path) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every text of ``recording.json``."""
    content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    for place in hostile_values.places(content):
        inner = content
        for key in place:
            inner = inner[key]
        if isinstance(inner, str):
            yield place


def inject(folder: Path, place: tuple[str | int, ...], draw: random.Random) -> None:
    """Let a text of ``recording.json`` be, or go on with, one that is to become code."""
    _change_json(folder / FILE, place, injected(draw), False)


def disturb(folder: Path, operation: str, draw: random.Random) -> None:
    """Change a value or name of ``recording.json``, or a column of one of the tables."""
    name = draw.choice((FILE, *TABLES))
    if name == FILE:
        places = list(hostile_values.places(json.loads((folder / FILE).read_text(encoding="utf-8"))))
        _change_json(folder / FILE, draw.choice(places), value(draw), draw.random() < 0.5)
    else:
        path = folder / operation / f"{name}.parquet"
        with suppress(pa.ArrowNotImplementedError):  # Parquet holds no struct without fields.
            pq.write_table(_changed_table(pq.read_table(path), draw), path)


def _change_json(path: Path, place: tuple[str | int, ...], new: Any, rename: bool) -> None:
    content = hostile_values.changed(json.loads(path.read_text(encoding="utf-8")), place, new, rename=rename)
    path.write_text(json.dumps(content), encoding="utf-8", errors="surrogatepass")


def _changed_table(table: pa.Table, draw: random.Random) -> pa.Table:
    """Return a table with one column of another content, type or name, or without it; or with other rows."""
    at = draw.randrange(table.num_columns)
    name, change = table.column_names[at], draw.choice(CHANGES)
    if change == "drop":
        return table.remove_column(at)
    if change == "rows":
        return table[: draw.randint(0, 1)]
    if change == "twice":
        return pa.concat_tables([table, table])
    if change == "rename":
        return table.rename_columns([injected(draw) if one == name else one for one in table.column_names])
    new = None if change == "null" else value(draw)
    values = table[name].to_pylist()
    values = [new] * len(values) if change == "values" else [new, *values[1:]]
    try:
        column = pa.array(values, table[name].type if draw.random() < 0.5 else None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        column = pa.array([ascii(new)] * len(values))
    return table.set_column(at, pa.field(name, column.type), column)
