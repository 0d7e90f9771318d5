"""Recordings of others: whatever stands in one, it is replayed or refused in one line, and its texts are plain."""

import shutil
from pathlib import Path

import hostile_recordings
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.core.isolation import call_apart
from tileseer.data.dataset import Dataset

ROOT = Path(__file__).parents[2]
OPERATION = "forward_bf16"


@pytest.fixture(scope="module", params=["sm_90_cudnn", "sm_90"])
def sound(request, tmp_path_factory):
    """A small part of a recording, so that replaying it is quick."""
    source = ROOT / "config/recorded" / request.param
    folder = tmp_path_factory.mktemp("sound") / "recording"
    hostile_recordings.small(source, OPERATION, folder)
    assert len(replayed(folder).problem) > 4
    return folder


def replayed(folder):
    return Dataset.read(folder / OPERATION)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.randoms(), text=st.booleans())
def test_a_hostile_recording_is_replayed_or_refused_in_one_line(draw, text, sound, tmp_path):
    folder = tmp_path / "recording"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    if text:
        hostile_recordings.inject(folder, draw.choice([*hostile_recordings.texts(folder)]), draw)
    else:
        hostile_recordings.disturb(folder, OPERATION, draw)
    try:
        data = replayed(folder)
    except UserError as error:
        assert folder.name in str(error) and "Traceback" not in str(error)
        return
    texts = [data.arch, data.device, data.operation, str(data.library)]
    assert not set('"\\;') & set("".join(texts))
    for table in (data.problems, data.candidates):
        texts += [text for name in table for text in table[name].unique() if isinstance(text, str)]
    assert all(text.isprintable() for text in texts)
    assert np.isfinite(data.tflops[data.ok]).all()


@pytest.mark.parametrize("name", ["kernels", "problems", "pairs"])
def test_a_row_that_is_there_twice_is_refused(name, sound, tmp_path):
    folder = tmp_path / "recording"
    shutil.copytree(sound, folder)
    path = folder / OPERATION / f"{name}.parquet"
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table[:1]]), path)
    with pytest.raises(UserError, match=rf"{name}.parquet: row {table.num_rows}, "):
        replayed(folder)


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
def test_a_table_that_grows_is_refused_before_it_takes_memory(kind, sound, tmp_path):
    folder = tmp_path / "recording"
    shutil.copytree(sound, folder)
    path = folder / OPERATION / "pairs.parquet"
    pq.write_table(bomb(kind, pq.read_table(path)), path)
    with pytest.raises(UserError, match=str(folder)) as caught:
        call_apart("the process", path.stat().st_size, lambda: len(replayed(folder).problem))
    assert str(caught.value).count("\n") == 0
