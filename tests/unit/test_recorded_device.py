"""A recording gives back what was measured, and says what it does not know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.devices import recorded
from tileseer.devices.base import STATUSES
from tileseer.devices.recorded import COLUMNS, RecordedDevice

ROWS = pd.DataFrame(
    [
        ("k2", 1, "p1", "ok", "", 0.5, 0.01, 9, 40),
        ("k1", 4, "p1", "crash", "SIGSEGV", None, None, 0, None),
        ("k1", 1, "p2", "ok", "", 0.25, None, 1, None),
    ],
    columns=list(COLUMNS),
)
NO_TIMES = [None, 0.0, -1.0, float("inf"), 3.6e6]
PROBLEMS = pd.DataFrame({"problem_key": ["p1", "p2"]})
CANDIDATES = pd.DataFrame({"kernel": ["k1", "k1", "k2"], "split_k": [1, 4, 1]})


def recording(path, rows=ROWS, **provenance):
    recorded.write(path / "r.parquet", rows, {"device": "toy"} | provenance)
    return path / "r.parquet"


def test_what_was_recorded_comes_back(tmp_path):
    device = RecordedDevice(recording(tmp_path, host="lab"), "toy")
    assert (device.name, device.kind, device.provenance["host"]) == ("toy", "recorded", "lab")
    p, c = (index.ravel() for index in np.indices((2, 3)))
    times = device.measure(PROBLEMS, CANDIDATES, p, c)
    assert [STATUSES[s] for s in times.status] == ["skipped", "crash", "ok", "ok", "skipped", "skipped"]
    assert times.error == [recorded.ABSENT, "SIGSEGV", "", "", recorded.ABSENT, recorded.ABSENT]
    np.testing.assert_array_equal(times.latency_ms, [np.nan, np.nan, 0.5, 0.25, np.nan, np.nan])
    np.testing.assert_array_equal(times.latency_cv, [np.nan, np.nan, 0.01, np.nan, np.nan, np.nan])
    assert times.samples.tolist() == [0, 0, 9, 1, 0, 0]
    assert times.non_zero.tolist() == [-1, -1, 40, -1, -1, -1]


def test_a_recorded_sentinel_comes_back(tmp_path):
    p, c = (index.ravel() for index in np.indices((2, 3)))
    assert RecordedDevice(recording(tmp_path), "toy").measure(PROBLEMS, CANDIDATES, p, c).sentinel is None
    device = RecordedDevice(recording(tmp_path, ROWS.assign(sentinel=[1.25, 1.0, np.nan])), "toy")
    drift = device.measure(PROBLEMS, CANDIDATES, p, c).sentinel
    np.testing.assert_array_equal(drift, [np.nan, 1.0, 1.25, np.nan, np.nan, np.nan])


def test_the_order_of_rows_makes_no_other_recording(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    first = RecordedDevice(recording(one), "toy").identity()
    assert RecordedDevice(recording(other, ROWS[::-1]), "toy").identity() == first
    assert RecordedDevice(recording(other, ROWS[:2]), "toy").identity() != first


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (pd.concat([ROWS, ROWS[:1]]), "k2 on p1 is in it twice"),
        (ROWS.assign(status="fine"), "the status 'fine'"),
        (ROWS[:0], "is empty"),
        *((ROWS.assign(latency_ms=[time, None, 0.25]), "k2 on p1 takes .* that is no time") for time in NO_TIMES),
    ],
)
def test_a_wrong_recording_says_what_is_wrong(tmp_path, rows, told):
    with pytest.raises(UserError, match=rf"r\.parquet: .*{told}"):
        RecordedDevice(recording(tmp_path, rows), "toy")


def test_a_recording_of_another_product_or_none_is_refused(tmp_path):
    with pytest.raises(UserError, match="the recording is of toy, but real stands for this arch"):
        RecordedDevice(recording(tmp_path), "real")
    parquet.write(pa.table({name: pa.array([], type_) for name, type_ in COLUMNS.items()}), tmp_path / "n.parquet")
    with pytest.raises(UserError, match="does not name the device"):
        RecordedDevice(tmp_path / "n.parquet", "toy")
    parquet.write(pa.table({"kernel": ["a"]}), tmp_path / "o.parquet")
    with pytest.raises(UserError, match="the column error is missing"):
        RecordedDevice(tmp_path / "o.parquet", "toy")
