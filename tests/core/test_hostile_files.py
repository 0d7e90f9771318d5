"""Files of others: whatever stands in one, each reader ends in bounded time and memory, with one line that names it."""

import contextlib
import gzip
import io
import os
import random
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileseer.core import documents, isolation, yaml_files
from tileseer.core.csv_files import read_csv
from tileseer.core.errors import UserError, plain_output
from tileseer.core.parquet import read_table
from tileseer.core.reading import read_utf8
from tileseer.problems.operation import Operation
from tileseer.problems.problem_lists import read_problem_lists


def read_list(path):
    return read_problem_lists([path], [Operation("forward", "bf16")])


READERS = [read_csv, read_table, read_list, documents.read_json, yaml_files.read_yaml, read_utf8]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "missing"])
def test_what_is_no_regular_file_is_refused_at_once(read, kind, tmp_path):
    path = tmp_path / "t.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"t\.csv: "):
        read(path)


def test_a_reader_that_waits_is_ended(monkeypatch):
    monkeypatch.setattr(isolation, "ELAPSED_SECONDS", 0.2)
    with pytest.raises(UserError, match=r"^f\.onnx: reading it ended with status -9; .* needs more than"):
        isolation.call_apart("f.onnx", 0, time.sleep, 600)


def test_a_column_that_is_there_twice_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("N,C, N\n1,2,3\n")
    with pytest.raises(UserError, match=r"t\.csv: the column 'N' appears twice"):
        read_csv(path)


def damaged(read, path):
    """Read a file in a process with 1 GiB more than its size; the one line that it ends with, or nothing."""
    try:
        isolation.call_apart(str(path), path.stat().st_size, lambda: bool(read(path) is not None))
    except UserError as error:
        assert "reading it ended with status" not in str(error), error
        assert str(path) in str(error) and str(error).count("\n") == 0 and len(str(error)) < 2000
        return str(error)
    return ""


@pytest.mark.parametrize("ending", ["gz", "bz2", "zip", "xz", "zst", "tar"])
def test_a_name_of_a_packed_file_is_read_as_it_stands(ending, tmp_path):
    path = tmp_path / f"t.csv.{ending}"
    path.write_text("a,b\n1,2\n")
    assert read_csv(path).to_numpy().tolist() == [["1", "2"]]
    path.write_bytes(gzip.compress(bytes(10**7)))
    assert damaged(read_csv, path)


HUGE = {
    "columns": b",".join(b"c%d" % n for n in range(10**6)) + b"\n1\n",
    "cells of a line": b"a,b\n" + b"," * 15_000_000,
    "cells": b"a,b\n" + b"1,2\n" * 11_000_000,
    "lists": b"[" + b"[]," * 5_000_000 + b"[]]",
    "objects": b"{" + b",".join(b'"a%d":{}' % n for n in range(10**6)) + b"}",
    "nesting": b"[" * 10**6,
    "digits": b"9" * 10**7,
    "base 60": b"a: " + b"1:" * 10**6 + b"1",
    "lines": b"".join(b"MIOpenDriver conv -n %d\n" % n for n in range(200_000)),
    "one line": b"x" * 10**8 + b" MIOpenDriver " + b"y" * 10**7,
}


TEXTS = (documents.read_json, yaml_files.read_yaml)
READ_BY = dict.fromkeys(HUGE, TEXTS) | dict.fromkeys(("columns", "cells of a line", "cells"), (read_csv,))
READ_BY |= dict.fromkeys(("lines", "one line"), (read_list,))


@pytest.mark.parametrize(("name", "read"), [(name, read) for name in HUGE for read in READ_BY[name]])
def test_a_huge_file_needs_little_beyond_its_size(name, read, tmp_path):
    path = tmp_path / "huge"
    path.write_bytes(HUGE[name])
    damaged(read, path)


WORDS = r"""!!int !!bool !!float !!timestamp !!binary !!python/name:os !x & * ? - [ ] { } , : # | > % @ ` ' " ~ = << . _
0x 0b 1:30 2024-01-01 1_0 +.inf .nan 1e400 maybe \n a b"""
PLAIN = st.sampled_from(WORDS.split())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(PLAIN | st.text(max_size=3), max_size=8), glue=st.sampled_from(["", " ", "\n", ": ", "\n- "]))
def test_any_yaml_is_data_or_one_line(words, glue):
    try:
        content = yaml_files.parse_yaml(glue.join(words), "f.yaml")
    except UserError as error:
        assert str(error).startswith("f.yaml") and str(error).count("\n") == 0
    else:
        assert set(map(type, flat(content))) <= {str, int, float, bool, type(None)}
        assert (
            content == yaml.load(glue.join(words), Loader=yaml.CSafeLoader)
            or content != content
            or "nan" in str(content)
        )


def flat(content):
    """Keys and values of nested lists and maps."""
    if isinstance(content, dict):
        return [one for pair in content.items() for each in pair for one in flat(each)]
    return [one for each in content for one in flat(each)] if isinstance(content, list) else [content]


ODD = st.sampled_from(["\x1b[2J", "\x9b", "\u202e", "\r", "\ud800", "\U000e0041", "a"])


@given(text=st.text() | st.lists(ODD).map("".join))
def test_nothing_that_a_terminal_obeys_is_printed(text):
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), plain_output():
        print(text)
    assert all(letter.isprintable() or letter in "\n\t" for letter in stream.getvalue())


def test_a_text_without_end_in_a_table_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"kernel": ["a", "b" * 10**8]}), path)
    assert "column kernel has a text of more than 65,536 bytes" in damaged(read_table, path)


def test_a_stream_that_the_caller_closed_is_none(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)
    with plain_output():
        print("anything")


def test_a_damaged_table_is_one_line(tmp_path):
    draw = random.Random(3)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"kernel": ["a", "b"] * 50, "n": range(100), "x": [[1.5]] * 100}), path)
    sound = path.read_bytes()
    for _ in range(25):
        content = bytearray(sound)
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
        damaged(read_table, path)
