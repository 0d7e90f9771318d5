"""What a damaged or hostile file of a user may hold: other bytes, or what its format can say at any place."""

import copy
import csv
import io
import json
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

VALUES = [
    None, True, -1, 0, 2**70, 1e308, float("nan"), float("inf"), "", " ", "x" * 5000, "a\nb", "a\0b", "é\u202e☃",
    "\ud800", "$(touch pwned)", "`touch pwned`", "; touch pwned", "'\"", "../../../etc/passwd", "/etc/passwd",
    "{{ 7 * 7 }}", "{wildcards.arch}", "__import__('os').system('touch pwned')",
    "!!python/object/apply:os.system ['touch pwned']", "9" * 12, "9" * 5000, "1.5", "٣", "8 8", "a\r\nb", ",",
    "\ufeff1", '"; inline const int evil = system(0); //', "*/\n#include <evil>", "x\\", "??/\n", "\u2028",
    [], {}, [[]], {"": {}}, {"a": {"b": [1, None]}}, [1] * 100,
]  # fmt: skip
HOSTILE = st.sampled_from(VALUES) | st.text(max_size=6) | st.integers() | st.floats()


def places(content, path=()):
    """Yield the path of every value inside a table."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(content, path, value, rename):
    """Return a table with one value, or one name, replaced."""
    if not path:
        return value
    content = copy.deepcopy(content)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if rename and isinstance(inner, dict):
        inner[str(value)] = inner.pop(path[-1])
    else:
        inner[path[-1]] = value
    return content


def damaged_bytes(data, content):
    """Draw a damage of bytes."""
    how = data.draw(st.sampled_from(("cut", "flip", "zeros", "empty", "foreign", "some bytes")))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    if how == "flip":
        return content[:at] + bytes([content[at] ^ 1 << data.draw(st.integers(0, 7))]) + content[at + 1 :]
    if how == "some bytes":
        return content[:at] + data.draw(st.binary(max_size=20)) + content[at + data.draw(st.integers(0, 20)) :]
    return {
        "cut": content[:at],
        "zeros": content[:at] + bytes(len(content) - at),
        "empty": b"",
        "foreign": b"nonsense\n" * 9,
    }[how]


def damaged_content(data, path):
    """Draw a change of one value, name, cell, line or column of a file, by the end of its name."""
    hostile = data.draw(HOSTILE)
    if path.suffix == ".parquet":
        return _damaged_table(data, pq.read_table(path), hostile)
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".json", ".yaml"):
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        where = data.draw(st.sampled_from(list(places(content))))
        content = changed(content, where, hostile, rename=data.draw(st.booleans()))
        made = json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content)
    else:
        rows = list(csv.reader(text.splitlines()))
        cells = data.draw(st.sampled_from(rows))
        cells[data.draw(st.integers(0, len(cells) - 1))] = str(hostile)
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        made = buffer.getvalue()
    return made.encode(errors="surrogatepass")


def _damaged_table(data, table, hostile):
    """Return a table with one column of another content, type or name, or without it; or with other rows."""
    at = data.draw(st.integers(0, table.num_columns - 1))
    change = data.draw(st.sampled_from(("value", "values", "null", "drop", "rename", "rows", "twice")))
    name = table.column_names[at]
    text = str(hostile).encode(errors="replace").decode()
    if change == "drop":
        table = table.remove_column(at)
    elif change in ("rows", "twice"):
        table = table[: data.draw(st.integers(0, 1))] if change == "rows" else pa.concat_tables([table, table])
    elif change == "rename":
        table = table.rename_columns([text if one == name else one for one in table.column_names])
    else:
        new, values = None if change == "null" else hostile, table[name].to_pylist()
        values = [new, *values[1:]] if change == "value" else [new] * len(values)
        try:
            column = pa.array(values, table[name].type if data.draw(st.booleans()) else None)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            column = pa.array([text] * len(values))
        table = table.set_column(at, pa.field(name, column.type), column)
    made = io.BytesIO()
    with suppress(pa.ArrowNotImplementedError):  # Parquet holds no struct without fields.
        pq.write_table(table, made)
    return made.getvalue()


def damaged(data, path):
    """Draw the content of a file that is damaged in any way."""
    return damaged_bytes(data, path.read_bytes()) if data.draw(st.booleans()) else damaged_content(data, path)
