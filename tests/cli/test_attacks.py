"""Attacks by files of others: at each door of the command line a line that names the file, little time and memory, and
nothing is written or read elsewhere."""

import bz2
import contextlib
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tileseer.cli import main
from tileseer.core import isolation

ROOT = Path(__file__).parents[2]
CONFIG = ["--config", str(ROOT / "config")]
MODELS = "models"
DOORS = {
    "problems.csv": ["crawl", "--problems", "FILE", "--output", "out.csv"],
    "network.onnx": ["crawl", "--onnx", "FILE", "--input", "1x3x8x8", "--output", "out.csv"],
    "gfx942130.HIP.fdb.txt": ["import", "find-db", "FILE", "--arch", "gfx942", "--output", "out"],
    "gfx942130.HIP.fdb.txt.bz2": ["import", "find-db", "FILE", "--arch", "gfx942", "--output", "out"],
    "rules.yaml": ["codegen", "--arch", "gfx950", "--rule-set", "FILE", "--output", "out", *CONFIG],
    "mine.yaml": ["doctor", "--configfile", "FILE", *CONFIG],
    "index.json": ["select", "FOLDER", "--problem", "N=8,C=64,K=64,Hi=14,Wi=14"],
    "recording.json": ["verify", "FOLDER"],
}
"""Calls by the name of the file that they read."""


def special(kind):
    """A function that puts no regular file at a path."""
    makers = {
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
        "zero": lambda path: path.symlink_to("/dev/zero"),
        "tty": lambda path: path.symlink_to("/dev/ptmx"),
        "loop": lambda path: path.symlink_to(path.name),
        "nowhere": lambda path: path.symlink_to("not/there"),
    }
    return makers[kind]


BYTES = {
    "nothing": b"",
    "zeros": bytes(10**6),
    "no text": bytes(range(256)) * 400,
    "UTF-16": "arch: gfx950\n".encode("utf-16"),
    "a line of 20 MB": b"x" * 20_000_000,
    "a text of escapes": b"\x1b[2J\x1b]0;evil\x07\r" * 50,
    "levels": b"[" * 200_000,
    "a program": b"#!/bin/sh\ntouch pwned\n",
    "2 GiB": None,
}
"""What no door reads."""
YAML = {
    "laughs": "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 10)}]\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True)),
    "an anchor in itself": "model: &m {seed: *m}\n",
    "an object": "model: !!python/object/apply:os.system ['touch pwned']\n",
    "a tag": "arch: !evil x\n",
    "a key twice": "arch: gfx950\narch: gfx942\n",
    "a template": "__use_yte__: true\narch: ?__import__('os').system('touch pwned')\n",
    "many documents": "---\narch: gfx950\n---\narch: gfx942\n",
    "no number": "model: {seed: .nan}\ntiles: .inf\n",
    "a huge number": f"model: {{seed: {'9' * 5000}}}\n",
    "a date": "arch: 2024-01-01\n",
    "a path outside": "publish: {name: ../../evil}\n",
}
JSON = {
    "no number": '{"format": NaN}',
    "infinity": '{"format": Infinity, "operations": {}}',
    "beyond a float": '{"format": 1e400}',
    "a key twice": '{"format": 1, "format": 2}',
    "half a character": '{"format": "\\ud800"}',
    "digits": f'{{"format": {"9" * 6000}}}',
    "a list": "[1, 2]",
    "a text": '"x"',
    "null": "null",
    "behind the end": "{} {}",
    "many keys": "{" + ",".join(f'"k{number}": 0' for number in range(300_000)) + "}",
    "escapes in a name": '{"\\u001b[2J": 1, "format": "\\u202e"}',
}
LINES = {
    "columns": ",".join(f"c{number}" for number in range(10**6)) + "\n1\n",
    "a column twice": "N,C,K,Hi,Wi,N\n1,2,3,4,5,6\n",
    "a quote without end": 'N,C,K,Hi,Wi\n1,2,"3,4,5\n' + "6,7,8,9,10\n" * 1000,
    "letters": "N,C,K,Hi,Wi\n1,2,three,4,5\n",
    "another script's digits": "N,C,K,Hi,Wi\n٣,64,64,8,8\n",
    "a number of 5000 digits": f"N,C,K,Hi,Wi\n{'9' * 5000},64,64,8,8\n",
    "no size": "N,C,K,Hi,Wi\n-1,64,64,8,8\n",
    "NUL": "N,C,K,Hi,Wi\n1,64,64,8,8\0\n",
    "a formula": "N,C,K,Hi,Wi\n=cmd|' /C calc'!A0,64,64,8,8\n",
}
FIND_DB = {
    "no times": "1-1-1\n",
    "a time that is none": "3-8-8-1x1-16-8-8-2-0x0-1x1-1x1-0-NCHW-FP32-F=Solver:nan,0,algo\n",
    "a time without end": "3-8-8-1x1-16-8-8-2-0x0-1x1-1x1-0-NCHW-FP32-F=Solver:1e308,0,algo\n",
    "a solver with a path": "3-8-8-1x1-16-8-8-2-0x0-1x1-1x1-0-NCHW-FP32-F=../../evil:0.1,0,algo\n",
    "a solver that ends C++": '3-8-8-1x1-16-8-8-2-0x0-1x1-1x1-0-NCHW-FP32-F="; evil(); //:0.1,0,algo\n',
}


def attacks():
    """Yield a name, the door and the content of each attack."""
    for door in DOORS:
        for kind in ("pipe", "folder", "zero", "loop", "nowhere"):
            yield door, kind, special(kind)
        for name, content in BYTES.items():
            yield door, name, content
    for door, own in {
        "rules.yaml": YAML, "mine.yaml": YAML, "index.json": JSON, "recording.json": JSON, "problems.csv": LINES,
        "gfx942130.HIP.fdb.txt": FIND_DB,
    }.items():  # fmt: skip
        for name, content in own.items():
            yield door, name, content.encode()
    yield "gfx942130.HIP.fdb.txt.bz2", "a bomb", bz2.compress(bytes(3 * 10**8))
    yield "gfx942130.HIP.fdb.txt.bz2", "cut off", bz2.compress(b"x=y\n" * 10**5)[:200]


ATTACKS = list(attacks())


def called(words):
    """The exit status of a call, and what it said."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = main.main(words)
        except SystemExit as end:
            status = end.code
    return status, output.getvalue()


def outside(folder):
    """What lies beside the folder of an attack, and the output."""
    return sorted(str(path) for path in folder.parent.rglob("*") if folder not in path.parents)


@pytest.mark.parametrize(("door", "name", "content"), ATTACKS, ids=[f"{door}: {name}" for door, name, _ in ATTACKS])
def test_an_attack_is_a_line(door, name, content, tmp_path, monkeypatch):
    folder = tmp_path / "given"
    folder.mkdir()
    monkeypatch.chdir(folder)
    path = folder / door
    if callable(content):
        content(path)
    elif content is None:
        with path.open("wb") as file:
            file.truncate(2**31)
    else:
        path.write_bytes(content)
    before = outside(folder)
    words = [{"FILE": door, "FOLDER": "."}.get(word, word) for word in DOORS[door]]
    # What reads networks runs in a process of its own already.
    status, said = called(words) if door == "network.onnx" else isolation.call_apart(door, 0, called, words)
    lines = said.strip().splitlines()
    assert status in (1, 2), said
    assert 1 <= len(lines) <= 5 and len(said) < 2500, said
    assert all(letter.isprintable() for line in lines for letter in line)
    assert sorted(each.name for each in folder.iterdir()) == [door] and outside(folder) == before


@pytest.mark.parametrize("location", ["../secret", "/dev/zero", "pipe", "not/there"])
def test_weights_of_a_network_that_lie_elsewhere_are_not_read(location, tmp_path, monkeypatch):
    helper = pytest.importorskip("onnx.helper")
    (tmp_path / "given").mkdir()
    monkeypatch.chdir(tmp_path / "given")
    os.mkfifo("pipe")
    weight = helper.make_tensor("w", 1, [4, 3, 3, 3], bytes(432), raw=True)
    weight.ClearField("raw_data")
    weight.data_location = 1
    weight.external_data.add(key="location", value=location)
    image, made = (helper.make_tensor_value_info(name, 1, [1, size, 8, 8]) for name, size in (("x", 3), ("y", 4)))
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    model = helper.make_model(helper.make_graph([node], "net", [image], [made], [weight]))
    Path("network.onnx").write_bytes(model.SerializeToString())
    words = [{"FILE": "network.onnx"}.get(word, word) for word in DOORS["network.onnx"]]
    status, said = called(words)
    assert status == 0, said
    assert Path("out.csv").read_text().count("\n") == 2


TABLES = {
    "another type": lambda table: table.set_column(0, table.column_names[0], pa.array(["x"] * len(table))),
    "lists": lambda table: table.set_column(0, table.column_names[0], pa.array([[1]] * len(table))),
    "objects": lambda table: table.set_column(0, table.column_names[0], pa.array([{"a": 1}] * len(table))),
    "no column": lambda table: table.drop_columns(table.column_names[:1]),
    "a column twice": lambda table: pa.table([*table.columns, table[0]], [*table.column_names, table.column_names[0]]),
    "empty cells": lambda table: table.set_column(0, table.column_names[0], pa.nulls(len(table), table[0].type)),
    "no rows": lambda table: table[:0],
    "a row often": lambda table: pa.concat_tables([table[:1]] * 3_000).combine_chunks(),
    "bytes": lambda table: table.set_column(0, table.column_names[0], pa.array([b"x"] * len(table))),
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A small recording of others: three tables, and what they are."""
    source, folder = ROOT / "config/recorded/sm_90", tmp_path_factory.mktemp("recording") / "sound"
    (folder / "forward_bf16").mkdir(parents=True)
    about = json.loads((source / "recording.json").read_text()) | {"operations": ["forward_bf16"]}
    (folder / "recording.json").write_text(json.dumps(about))
    for name, rows in (("kernels", 24), ("problems", 4), ("pairs", None)):
        table = pq.read_table(source / f"forward_bf16/{name}.parquet")
        if rows is None:
            table = table.filter((np.asarray(table["problem"]) < 4) & (np.asarray(table["kernel"]) < 24))
        pq.write_table(table[:rows], folder / f"forward_bf16/{name}.parquet")
    return folder


@pytest.mark.parametrize("table", ["kernels", "problems", "pairs"])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_recording_is_refused_or_read(name, table, recording, tmp_path):
    folder = shutil.copytree(recording, tmp_path / "recording")
    path = folder / f"forward_bf16/{table}.parquet"
    pq.write_table(TABLES[name](pq.read_table(path)), path)
    status, said = isolation.call_apart(str(path), path.stat().st_size, called, ["verify", str(folder)])
    assert said.count("\n") == 2, said
    assert said.startswith("FAIL" if status else "ok") and (status == 1 or name in ("no column", "no rows")), said
