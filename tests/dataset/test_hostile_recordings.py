"""Recordings of others: whatever stands in one, it is replayed or refused in one line, and its texts are plain."""

import shutil
from pathlib import Path

import hostile_recordings
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.dataset import recording
from tileseer.dataset.provenance import provenance_of
from tileseer.dataset.schema import SCHEMA, read_rows
from tileseer.gpus import hardware
from tileseer.problems.operation import Operation

ROOT = Path(__file__).parents[2]
OPERATION = Operation.parse("forward_bf16")
NAMES = ("arch", "device", "operations", "library")
HARDWARE = {
    name: hardware.read_hardware(ROOT / "config/hardware.yaml", name) for name in ("gfx942_mi300x", "sm_90_h200")
}


@pytest.fixture(scope="module", params=["sm_90_cudnn", "sm_90"])
def sound(request, tmp_path_factory):
    """A small part of a recording, so that replaying it is quick."""
    source = ROOT / "config/recorded" / request.param
    folder = tmp_path_factory.mktemp("sound") / "recording"
    hostile_recordings.small(source, str(OPERATION), folder)
    assert replayed(folder).num_rows > 4
    return folder


def replayed(folder):
    return recording.recorded_dataset(folder, OPERATION, HARDWARE["sm_90_h200"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.randoms(), text=st.booleans())
def test_a_hostile_recording_is_replayed_or_refused_in_one_line(draw, text, sound, tmp_path):
    folder = tmp_path / "recording"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    if text:
        hostile_recordings.inject(folder, draw.choice([*hostile_recordings.texts(folder)]), draw)
    else:
        hostile_recordings.disturb(folder, str(OPERATION), draw)
    try:
        table = replayed(folder)
    except UserError as error:
        assert folder.name in str(error) and "Traceback" not in str(error)
        return
    # What was replayed is a dataset that the next stage reads, and every text in it is plain.
    pq.write_table(table, tmp_path / "dataset.parquet")
    provenance = provenance_of(read_rows(tmp_path / "dataset.parquet"), folder)
    texts = [*(str(getattr(provenance, name, "")) for name in ("arch", "device", "operation", "library"))]
    for field in SCHEMA:
        if pa.types.is_dictionary(field.type):
            texts += table[field.name].unique().to_pylist()
    assert all(text.isprintable() for text in texts)
    assert not set('"\\;') & set("".join(texts[:4]))


@pytest.mark.parametrize("name", ["kernels", "problems"])
def test_a_kernel_or_problem_that_is_there_twice_is_refused(name, sound, tmp_path):
    folder = tmp_path / "recording"
    shutil.copytree(sound, folder)
    path = folder / str(OPERATION) / f"{name}.parquet"
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table[:1]]), path)
    with pytest.raises(UserError, match=rf"{name}.parquet: row {table.num_rows}, "):
        replayed(folder)


@pytest.mark.parametrize("name", ["latency_ms", "tflops"])
@pytest.mark.parametrize("value", [5e-324, 1e300, -1.0, 0.0, float("inf"), float("-inf")])
def test_a_dataset_with_an_impossible_number_is_one_line(name, value, tmp_path):
    def change(rows):
        rows.loc[rows.index[rows["status"] == "ok"][0], name] = value

    with pytest.raises(UserError, match=rf"d.parquet: row \d+, {name} is .*make the file again$"):
        read_rows(Path(dataset(tmp_path / "d.parquet", change)))


@pytest.mark.parametrize("name", ["latency_cv", "sentinel", "vgprs"])
def test_a_dataset_with_an_endless_number_is_one_line(name, tmp_path):
    with pytest.raises(UserError, match=f"row 0, {name} is inf"):
        read_rows(Path(dataset(tmp_path / "d.parquet", lambda rows: rows.assign(**{name: float("inf")}))))
