"""Files of others: whatever stands in one, each reader ends in bounded time and memory, with one line that names it."""

import contextlib
import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from damage import HOSTILE, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileseer.core import bundle, isolation, yaml_files
from tileseer.core.csv_files import read_csv
from tileseer.core.documents import read_json
from tileseer.core.errors import UserError, plain_output
from tileseer.core.parquet import read_table, write_table
from tileseer.core.reading import read_utf8
from tileseer.data.dataset import Dataset
from tileseer.facts.config import check, read_config_file
from tileseer.libraries.ck_tile import api as ck_api
from tileseer.libraries.problem_lists import read_problem_lists
from tileseer.problems import layers
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS
from tileseer.serve import scoring
from zoo import entries

ROOT = Path(__file__).parents[2]
FORWARD = Operation("forward", "bf16")


def read_list(path):
    return read_problem_lists([path], [FORWARD])


def read_config(path):
    check(yaml_files.read_yaml(path), str(path))


def read_layers(path):
    found = layers.read_layers(path)
    for run in layers.runs_of(found, "forward"):
        assert sum(map(run.share, run.layers)) == pytest.approx(1)
    assert all(layer.problem_for(FORWARD).key for layer in found)
    return found


def read_kernels(path):
    scoring.read_kernels(path, scoring.read_kernel_names(path), "gfx950", FORWARD, 2)


def read_recording(path):
    """Read the recording of a file; what is read of one can be trained on, and its texts can be written anywhere."""
    folder = path.parent if path.suffix == ".json" else path.parent.parent
    data = Dataset.read(folder / str(FORWARD))
    texts = [data.arch, data.device, data.operation, str(data.library)]
    assert not set('"\\;') & set("".join(texts))
    for table in (data.problems, data.candidates):
        texts += [text for name in table for text in table[name].unique() if isinstance(text, str)]
    assert all(text.isprintable() for text in texts)
    assert np.isfinite(data.tflops[data.ok]).all()
    return data


PLAIN = {name: 0 if name.startswith("pad") else 1 for name in DIMS} | {"N": 8, "C": 64, "K": 64, "Hi": 14, "Wi": 14}
LAYER = {"network": "net", "family": "f", "run": "infer", "layer": "conv", "layout": "NCHW", "directions": "forward"}
LAYER |= {"occurrences": 2, "split": "test", **PLAIN}
ZOO = {"package": "p", "family": "f", "task": "speech", "call": "m:f", "networks": {"n": ["train 8@3x4"]}}
NAMES = (
    "grouped_conv_fwd_bf16_nhwgc_2d_compv6_cshuffle_intrawave_64x64x64_4x1x1_16x16x16@splitk4",
    "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave_gm2",
    "libdispatcher_conv_forward_2d_bf16_64x64x64_4x1x1_16x16x16_compv3_intrawave.so",
)


def rows_of(row):
    return "\n".join([",".join(row), *(",".join(map(str, (row | {"C": 64 * n}).values())) for n in (1, 2, 3))]) + "\n"


TABLES = ("kernels", "problems", "pairs")
FILES = {
    "config.yaml": read_config,
    "layers.csv": read_layers,
    "problems.csv": lambda path: read_list(path).problems,
    "lists.csv": read_list,
    "zoo.yaml": entries.load,
    "kernels.txt": read_kernels,
    "bundle.tar": bundle.read_bundle,
    **{
        f"{arch}/{name}": read_recording
        for arch in ("sm_90", "sm_90_cudnn")
        for name in ("recording.json", *(f"forward_bf16/{table}.parquet" for table in TABLES))
    },
}
"""Files of a user, each with its reader; ``test_nothing_half_written.py`` has those that stages read."""
MADE = {
    "layers.csv": rows_of(LAYER),
    "problems.csv": rows_of(PLAIN),
    "lists.csv": rows_of(PLAIN),
    "zoo.yaml": yaml.safe_dump({"packages": {"p": {"licence": "MIT"}}, "groups": [ZOO]}),
    "kernels.txt": "\n".join(NAMES) + "\n",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with a sound file of each kind, of recordings a small part."""
    folder = tmp_path_factory.mktemp("sound")
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in MADE:
            path.write_text(MADE[name])
        elif (ROOT / "config" / name).exists():
            shutil.copy(ROOT / "config" / name, path)
    bundle.write_bundle(folder / "bundle.tar", {"a": b"x" * 3000, "b/c": "text"})
    for arch in ("sm_90", "sm_90_cudnn"):
        source = ROOT / "config/recorded" / arch
        shutil.copy(source / "recording.json", folder / arch)
        tables = {
            name: pq.read_table(source / f"forward_bf16/{name}.parquet") for name in ("kernels", "problems", "pairs")
        }
        pairs = tables["pairs"]
        tables["pairs"] = pairs.filter((np.asarray(pairs["problem"]) < 4) & (np.asarray(pairs["kernel"]) < 24))
        for name, rows in (("kernels", 24), ("problems", 4), ("pairs", None)):
            pq.write_table(tables[name][:rows], folder / f"{arch}/forward_bf16/{name}.parquet")
    for name, read in FILES.items():
        read(folder / name)
    return folder


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_named(name, data, sound, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = sound / name
    before, content = sorted(sound.rglob("*")), damaged(data, path)
    with replaced(path, content):
        try:
            FILES[name](path)
        except UserError as error:
            parts = {path.name, "recording"} if "forward_bf16" in name else {path.name}
            assert str(sound) in str(error) or any(part in str(error) for part in parts), error
            assert len(str(error)) < 12_000
        assert sorted(sound.rglob("*")) == before and not list(tmp_path.iterdir())


@contextlib.contextmanager
def replaced(path, content):
    """A file has another content meanwhile."""
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize("name", ["layers.csv", "problems.csv"])
@given(data=st.data())
def test_a_hostile_cell_is_read_or_told_with_line_and_column(name, data, tmp_path_factory):
    header, *rows = csv.reader(MADE[name].splitlines())
    at, line = data.draw(st.integers(0, len(header) - 1)), data.draw(st.integers(0, 2))
    rows[line][at] = str(data.draw(HOSTILE)).encode(errors="replace").decode()
    path = tmp_path_factory.mktemp("table") / name
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    try:
        assert len(FILES[name](path)) <= 3
    except UserError as error:
        told = str(error)
        assert told.startswith(str(path)) and len(told) < 1000
        # A line break inside of a cell moves the rows below it.
        assert re.search(rf"line [{line + 2}-{line + 4}]\b", told), told
        assert header[at] in told or "fields" in told or "network and layer" in told, told


CERTAIN = {
    "twice.yaml": ("arch: gfx950\narch: gfx942\n", "'arch' is written twice"),
    "twice.json": ('{"arch": "gfx950", "arch": "gfx942"}', "'arch' is written twice"),
    "deep.yaml": ("a: " + "[" * 100_000, "nested too deeply"),
    "deep.json": ("[" * 100_000, "nested too deeply"),
    "block.yaml": ("".join(f"{' ' * depth}a:\n" for depth in range(1500)), "nested too deeply"),
    "template.yaml": ("__use_yte__: true\narch: ?__import__('os').system('touch pwned')\n", "lets the file run code"),
    "latin.yaml": (b"arch: gfx950 # \xe9\n", "is not UTF-8"),
    "sound.yaml": ("arch: gfx950 # é\n", ""),
    "sound.json": (json.dumps({"arch": "gfx950"}), ""),
    "twice.csv": ("N,C, N\n1,2,3\n", "the column 'N' appears twice"),
    "short.csv": ("N,C\n1,2\n3\n", "line 3: 1 fields, but the header has 2"),
    "numbers.csv": ("1,2\n1,2\n", "line 1: '1' names no column; write a header above it"),
    "signs.csv": ("N;C\n1;2\n", "separated by ';'; write commas"),
    "latin.csv": (b"N,C\n1,\xe9\n", "line 2 is not UTF-8"),
    "wide.csv": ("N,C\n1,2\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "table.csv": (b"PAR1\x15\x04", "is a Parquet file"),
    "ck_api.yaml": ((ROOT / "config/ck_api.yaml").read_text().replace("\nlevel:", "\nlevem:"), "no API level"),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_what_snakemake_would_read_in_silence_or_run_is_refused(name, tmp_path):
    content, reason = CERTAIN[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    read = ck_api.read_api if name == "ck_api.yaml" else read_csv if name.endswith(".csv") else read_config_file
    with pytest.raises(UserError, match=f"{name}.*{reason}") if reason else contextlib.nullcontext():
        read(path)


def test_texts_are_utf8_whatever_the_locale_says(tmp_path):
    (tmp_path / "é.yaml").write_text("# ☃\narch: gfx950\narch: é\n", encoding="utf-8")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import pathlib; from tileseer.facts.config import read_config_file as c; c(*pathlib.Path().glob('*.yaml'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert b"'arch' is written twice" in done.stderr


@pytest.mark.parametrize("number", ["9" * 7, str(2**31), "9" * 19, str(2**64), "9" * 5000])
@pytest.mark.parametrize("name", NAMES)
def test_a_huge_number_in_a_kernel_name_is_refused_with_its_line(name, number, tmp_path):
    path = tmp_path / "kernels.txt"
    for place in re.finditer(r"(?<=[_x@k])\d+(?=[_x.@]|$)|(?<=gm)\d+|(?<=splitk)\d+", name):
        path.write_text(name[: place.start()] + number + name[place.end() :] + "\n")
        with pytest.raises(UserError, match=r"kernels\.txt, line 1"):
            read_kernels(path)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("arch", ["sm_90", "sm_90_cudnn"])
def test_a_row_of_a_recording_that_is_there_twice_is_refused(arch, name, sound):
    path = sound / f"{arch}/forward_bf16/{name}.parquet"
    table, made = pq.read_table(path), io.BytesIO()
    pq.write_table(pa.concat_tables([table, table[:1]]), made)
    with replaced(path, made.getvalue()), pytest.raises(UserError, match=rf"{name}.parquet: row {table.num_rows}, "):
        read_recording(path)


def bomb(kind, table):
    """A table of a few KiB whose content takes all memory."""
    rows = pa.array(np.zeros(4_000_000 if kind == "rows" else 100_000, np.int64))
    many = table.take(rows) if kind in ("rows", "splits") else table
    if kind == "splits":
        at = many.schema.get_field_index("split_k")
        return many.set_column(at, many.schema.field(at), pa.array(np.arange(1, len(many) + 1), pa.int32()))
    if kind == "text":
        codes = pa.array(np.zeros(len(table), np.int32))
        long = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 10_000_000]))
        return table.set_column(table.schema.get_field_index("status"), "status", long)
    return (
        table.append_column("reason", pa.array([[{"a": [1] * 1000}] * 10] * len(table))) if kind == "nested" else many
    )


@pytest.mark.parametrize("kind", ["rows", "splits", "text", "nested"])
def test_a_table_that_grows_is_refused_before_it_takes_memory(kind, sound):
    path, made = sound / "sm_90/forward_bf16/pairs.parquet", io.BytesIO()
    pq.write_table(bomb(kind, pq.read_table(path)), made)
    with replaced(path, made.getvalue()), pytest.raises(UserError, match=str(path.parents[1])) as caught:
        isolation.call_apart("the process", path.stat().st_size, lambda: len(read_recording(path).problem))
    assert str(caught.value).count("\n") == 0


READERS = [read_csv, read_table, read_list, read_json, yaml_files.read_yaml, read_utf8]


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


def said(read, path):
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
    assert said(read_csv, path)


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


TEXTS = (read_json, yaml_files.read_yaml)
READ_BY = dict.fromkeys(HUGE, TEXTS) | dict.fromkeys(("columns", "cells of a line", "cells"), (read_csv,))
READ_BY |= dict.fromkeys(("lines", "one line"), (read_list,))


@pytest.mark.parametrize(("name", "read"), [(name, read) for name in HUGE for read in READ_BY[name]])
def test_a_huge_file_needs_little_beyond_its_size(name, read, tmp_path):
    path = tmp_path / "huge"
    path.write_bytes(HUGE[name])
    said(read, path)


WORDS = r"""!!int !!bool !!float !!timestamp !!binary !!python/name:os !x & * ? - [ ] { } , : # | > % @ ` ' " ~ = << . _
0x 0b 1:30 2024-01-01 1_0 +.inf .nan 1e400 maybe \n a b"""
SIMPLE = st.sampled_from(WORDS.split())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(SIMPLE | st.text(max_size=3), max_size=8), glue=st.sampled_from(["", " ", "\n", ": ", "\n- "]))
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
    assert "column kernel has a text of more than 65,536 bytes" in said(read_table, path)


def test_a_stream_that_the_caller_closed_is_none(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)
    with plain_output():
        print("anything")


def test_a_wrong_bit_in_a_page_of_parquet_is_noticed(tmp_path):
    table = pa.table({"time": np.random.default_rng(1).random(4096)})
    path = tmp_path / "times.parquet"
    write_table(table, path)
    sound = path.read_bytes()
    for place in range(100, 4096 * 8, 997):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(UserError, match=r"times\.parquet: this is no readable Parquet file"):
            read_table(path)
