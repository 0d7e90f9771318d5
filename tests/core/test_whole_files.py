"""Files appear whole or not at all, and a writer that was killed leaves nothing for long."""

import errno
import os

import pyarrow as pa
import pytest

from tileseer.core import bundle, parquet
from tileseer.core.atomic import write_text

WRITERS = {
    "table.parquet": lambda path: parquet.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), path),
    "bundle.tar": lambda path: bundle.write_bundle(path, {"a.hpp": "text"}),
    "report.json": lambda path: write_text(path, "{}"),
}


def test_what_a_killed_writer_has_left_goes_with_the_next_one(tmp_path, monkeypatch):
    left = tmp_path / ".a.json.x1y2.tmp"
    others = [tmp_path / name for name in (".b.json.x1y2.tmp", "a.json.tmp", ".a.json.young.tmp")]
    for path in (left, *others):
        path.write_text("half")
        os.utime(path, (1, 1))
    os.utime(others[-1])
    monkeypatch.setattr(os, "getuid", lambda: -1)
    write_text(tmp_path / "a.json", "{}")
    assert left.exists(), "it is another user's"
    monkeypatch.undo()
    write_text(tmp_path / "a.json", "{}")
    assert not left.exists() and all(path.exists() for path in others)


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_nothing(name, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=f"No space left on device: .*{name}"):
        WRITERS[name](tmp_path / name)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", WRITERS)
def test_no_device_or_pipe_is_replaced(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="is a device or a pipe; give the name of a file"):
        WRITERS[name](tmp_path / name)
    assert (tmp_path / name).is_fifo() and len(list(tmp_path.iterdir())) == 1
