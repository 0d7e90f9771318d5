"""Files that a later stage reads are read as they were written, or not at all."""

import errno
import json
import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core import bundle, documents, parquet, seal
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError

WRITERS = {
    "table.parquet": (
        lambda path: parquet.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), path),
        parquet.read_table,
    ),
    "bundle.tar": (lambda path: bundle.write_bundle(path, {"a.hpp": "text"}), bundle.read_bundle),
    "report.json": (lambda path: write_text(path, json.dumps({"a": 1.25}), sealed=True), documents.read_json),
}


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.data())
def test_one_wrong_bit_anywhere_is_noticed(name, data, tmp_path_factory):
    write, read = WRITERS[name]
    path = tmp_path_factory.mktemp("sealed") / name
    write(path)
    assert read(path)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path}: the file was changed or damaged .* delete both and run again"):
        read(path)


def test_a_damaged_seal_is_noticed_and_a_missing_one_is_no_fault(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "{}", sealed=True)
    seal.seal_path(path).write_bytes(b"\xff")
    with pytest.raises(UserError, match="delete both"):
        documents.read_json(path)
    seal.seal_path(path).unlink()
    assert documents.read_json(path) == {}


def test_what_a_killed_writer_has_left_goes_with_the_next_one(tmp_path, monkeypatch):
    left = [tmp_path / name for name in (".a.json.x1y2.tmp", ".a.json.sha256.12.tmp")]
    others = [tmp_path / name for name in (".b.json.x1y2.tmp", "a.json.tmp", ".a.json.young.tmp")]
    for path in (*left, *others):
        path.write_text("half")
        os.utime(path, (1, 1))
    os.utime(others[-1])
    monkeypatch.setattr(os, "getuid", lambda: -1)
    write_text(tmp_path / "a.json", "{}", sealed=True)
    assert all(path.exists() for path in left), "they are another user's"
    monkeypatch.undo()
    write_text(tmp_path / "a.json", "{}", sealed=True)
    assert not any(path.exists() for path in left) and all(path.exists() for path in others)


def test_writing_again_renews_the_seal(tmp_path):
    path = tmp_path / "a.json"
    for text in ("{}", "[]"):
        write_text(path, text, sealed=True)
        documents.read_json(path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("step", range(2))
def test_a_disk_that_is_full_at_any_moment_leaves_nothing_new(name, step, tmp_path, monkeypatch):
    write = WRITERS[name][0]
    path = tmp_path / name
    calls = []

    def full(*arguments):
        calls.append(arguments)
        if len(calls) > step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(*arguments)

    replace = os.replace
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=f"No space left on device: .*{name}"):
        write(path)
    # A seal may be there, of a file that is not: it is replaced with the file.
    assert not [left for left in tmp_path.iterdir() if left != seal.seal_path(path)]
