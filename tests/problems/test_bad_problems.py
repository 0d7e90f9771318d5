"""Whatever stands in a table of layers, a list of problems or a zoo file: it is read, or one message says where."""

import csv
import io
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.core.csv_files import read_csv
from tileseer.core.errors import UserError
from tileseer.problems import layers, problem_csv
from tileseer.problems.crawl import user_model
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS
from zoo import entries

PLAIN = {name: 0 if name.startswith("pad") else 1 for name in DIMS} | {"N": 8, "C": 64, "K": 64, "Hi": 14, "Wi": 14}
LAYER = {"network": "net", "family": "f", "run": "infer", "layer": "conv", "layout": "NCHW", "directions": "forward"}
LAYER |= {"occurrences": 2, "split": "test", **PLAIN}
HOSTILE = st.sampled_from((
    "", " ", "-1", "0", "1.5", "1e3", "٣", "²", "9" * 12, "9" * 5000, "x" * 5000, "nan", "inf", "NULL", "8 8", '"', "'",
    "a\nb", "a\r\nb", "\0", ",", "\ufeff1", "é\u202e☃", "$(touch pwned)", "=1+1", "../../etc", "__import__('os')",
))  # fmt: skip
"""Texts for a cell."""


def read_foreign(path):
    found, _ = problem_csv.dims_of_rows(path, read_csv(path))
    problem_csv.check_problems(path, found, "forward", "bf16")
    return found


def read_layers(path):
    found = layers.read_layers(path)
    for run in layers.runs_of(found, "forward"):
        assert sum(map(run.share, run.layers)) == pytest.approx(1)
    assert all(layer.problem_for(Operation("forward", "bf16")).key for layer in found)
    return found


CSV = {"layers": (read_layers, LAYER), "problems": (read_foreign, PLAIN)}


def text_of(rows, columns):
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", CSV)
@given(data=st.data())
def test_a_hostile_cell_is_read_or_told_with_file_line_and_column(kind, data, tmp_path_factory):
    read, row = CSV[kind]
    column, line = data.draw(st.sampled_from([*row])), data.draw(st.integers(0, 2))
    rows = [dict(row, C=64 * (i + 1)) for i in range(3)]
    rows[line][column] = data.draw(HOSTILE)
    path = tmp_path_factory.mktemp("table") / "mine.csv"
    path.write_bytes(text_of(rows, [*row]).encode())
    try:
        assert len(read(path)) <= 3
    except UserError as error:
        told = str(error)
        assert told.startswith(str(path)) and len(told) < 1000
        # A line break inside of a cell moves the rows below it.
        assert re.search(rf"line [{line + 2}-{line + 4}]\b", told), told
        assert column in told or "fields" in told or "network and layer" in told, told


@pytest.mark.parametrize("kind", CSV)
@given(data=st.data())
def test_a_hostile_header_is_read_or_told_with_the_file(kind, data, tmp_path_factory):
    read, row = CSV[kind]
    column = data.draw(st.sampled_from([*row]))
    columns = [data.draw(HOSTILE) if name == column else name for name in row]
    path = tmp_path_factory.mktemp("table") / "mine.csv"
    path.write_bytes((text_of([], columns) + text_of([row], [*row]).split("\n")[1] + "\n").encode())
    try:
        read(path)
    except UserError as error:
        assert str(error).startswith(str(path))


@pytest.mark.parametrize("kind", CSV)
@settings(max_examples=60)
@given(data=st.data())
def test_damaged_bytes_are_read_or_told_with_the_file(kind, data, tmp_path_factory):
    read, row = CSV[kind]
    content = bytearray(text_of([row, row], [*row]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        end = start + data.draw(st.integers(0, 9))
        content[start:end] = data.draw(st.binary(max_size=9))
    path = tmp_path_factory.mktemp("table") / "mine.csv"
    path.write_bytes(bytes(content) or b"\0")
    try:
        read(path)
    except UserError as error:
        assert str(error).startswith(str(path))


@given(data=st.data())
def test_a_hostile_zoo_file_is_read_or_told_with_the_file(data, tmp_path_factory):
    group = {"package": "p", "family": "f", "task": "speech", "call": "m:f", "networks": {"n": ["train 8@3x4"]}}
    field = data.draw(st.sampled_from([*group, "feed", "by_name", "arguments", "run", "name"]))
    value = data.draw(HOSTILE | st.sampled_from((None, [], {}, [[]], 2**70, {"": None}, "train 1@" + "9" * 5000)))
    if field == "run":
        group["networks"] = {"n": [value]}
    elif field == "name":
        group["networks"] = {value if isinstance(value, str) else "n": ["infer 1@3x4"]}
    else:
        group[field] = value
    path = tmp_path_factory.mktemp("zoo") / "zoo.yaml"
    path.write_text(yaml.safe_dump({"packages": {"p": {"licence": "MIT"}}, "groups": [group]}))
    try:
        entries.load(path)
    except UserError as error:
        assert str(path) in str(error)


@given(HOSTILE | st.text(max_size=20) | st.just("8x" + "9" * 5000))
def test_a_hostile_input_is_understood_or_told(text):
    try:
        name, shape = user_model.parse_input(text)
    except UserError as error:
        assert str(error).startswith("--input: ") and len(str(error)) < 300
    else:
        assert all(0 < extent < 2**31 for extent in shape) and (not name or text.startswith(name + "="))
