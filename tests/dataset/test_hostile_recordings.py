"""Recordings of others: whatever stands in one, it is replayed or refused in one line, and its texts are plain."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import dataset
from hostile_values import HOSTILE, changed, places
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
INJECTED = st.builds(
    lambda begin, text, end: begin + text + end,
    st.sampled_from(["", "cudnn 91900", "gfx950", "x"]),
    st.sampled_from(['"', '";', "\n", "\\", "*/", "\r", "??/\n", "\u2028", "\0", '")', "*/\n#", "\x1f"]),
    st.sampled_from(["", " inline const int evil = system(0); //", "#include <evil>", "\\"]),
)
VALUES = HOSTILE | INJECTED | st.text(max_size=5) | st.floats() | st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module", params=["sm_90_cudnn", "sm_90"])
def sound(request, tmp_path_factory):
    """A small part of a recording, so that replaying it is quick."""
    source = ROOT / "config/recorded" / request.param
    folder = tmp_path_factory.mktemp("sound") / "recording"
    (folder / str(OPERATION)).mkdir(parents=True)
    shutil.copy(source / recording.FILE, folder)
    tables = {
        name: pq.read_table(source / str(OPERATION) / f"{name}.parquet") for name in ("kernels", "problems", "pairs")
    }
    pairs = tables["pairs"]
    few = pairs.filter((np.asarray(pairs["problem"]) < 4) & (np.asarray(pairs["kernel"]) < 24))
    for name, table in {"kernels": tables["kernels"][:24], "problems": tables["problems"][:4], "pairs": few}.items():
        pq.write_table(table, folder / str(OPERATION) / f"{name}.parquet")
    assert replayed(folder).num_rows > 4
    return folder


def replayed(folder):
    return recording.recorded_dataset(folder, OPERATION, HARDWARE["sm_90_h200"])


def hostile_table(data, table):
    """A table with one column of another content, type or name, or without it; or with other rows."""
    at = data.draw(st.integers(0, table.num_columns - 1))
    name = table.column_names[at]
    change = data.draw(
        st.sampled_from(["value", "value", "value", "values", "drop", "rename", "null", "rows", "twice"])
    )
    if change == "drop":
        return table.remove_column(at)
    if change == "rows":
        return table[: data.draw(st.integers(0, 1))]
    if change == "twice":
        return pa.concat_tables([table, table])
    if change == "rename":
        names = [data.draw(INJECTED) if one == name else one for one in table.column_names]
        return table.rename_columns(names)
    value = None if change == "null" else data.draw(VALUES)
    values = table[name].to_pylist()
    values = [value] * len(values) if change == "values" else [value, *values[1:]]
    try:
        column = pa.array(values, table[name].type if data.draw(st.booleans()) else None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        column = pa.array([repr(value)] * len(values))
    return table.set_column(at, pa.field(name, column.type), column)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_hostile_recording_is_replayed_or_refused_in_one_line(data, sound, tmp_path):
    folder = tmp_path / "recording"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    names = [recording.FILE, *(f"{OPERATION}/{name}.parquet" for name in ("kernels", "problems", "pairs"))]
    path = folder / data.draw(st.sampled_from(names))
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        where = data.draw(st.sampled_from(list(places(content))))
        content = changed(content, where, data.draw(VALUES), rename=data.draw(st.booleans()))
        path.write_text(json.dumps(content), encoding="utf-8", errors="surrogatepass")
    else:
        with suppress(pa.ArrowNotImplementedError):  # Parquet holds no struct without fields.
            pq.write_table(hostile_table(data, pq.read_table(path)), path)
    try:
        table = replayed(folder)
    except UserError as error:
        assert folder.name in str(error) and "Traceback" not in str(error)
        return
    # What was replayed is a dataset that the next stage reads, and every text in it is plain.
    pq.write_table(table, tmp_path / "dataset.parquet")
    provenance = provenance_of(read_rows(tmp_path / "dataset.parquet"), path)
    texts = [*(str(getattr(provenance, name, "")) for name in ("arch", "device", "operation", "library"))]
    for field in SCHEMA:
        if pa.types.is_dictionary(field.type):
            texts += table[field.name].unique().to_pylist()
    assert all(text.isprintable() for text in texts)
    assert not set('"\\;') & set("".join(texts[:4]))


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
