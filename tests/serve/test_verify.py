"""``tileseer verify``: what is whole passes, and any damage is found and named."""

import json
import shutil
from pathlib import Path

import pytest
from dataset_files import dataset

from tileseer.cli import main
from tileseer.core import parquet

ROOT = Path(__file__).parents[2]


def verify(capsys, path):
    status = main.main(["verify", str(path), "--config", str(ROOT / "config"), "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture
def copy(models, tmp_path):
    return shutil.copytree(models, tmp_path / "models")


def test_a_published_directory_is_whole(models, capsys):
    status, found = verify(capsys, models)
    assert status == found["failed"] == 0
    assert len(found["checks"]) == 2 and "device kind: simulated" in found["checks"][1]["said"]


@pytest.mark.parametrize("name", ["selector.hpp", "kernels.json"])
def test_a_changed_and_a_missing_file_are_found(copy, capsys, name):
    (path,) = copy.rglob(name)
    if name == "kernels.json":
        path.rename(path.with_name("others.json"))
    else:
        path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    status, found = verify(capsys, copy)
    assert status == 1 and found["failed"] == 1 and name in found["checks"][0]["said"]


def test_a_dataset_is_checked_by_its_columns(tmp_path, capsys):
    path = dataset(tmp_path / "d") / "pairs.parquet"
    assert verify(capsys, path.parent)[0] == 0
    parquet.write_table(parquet.read_table(path).drop_columns(["median_us"]), path)
    status, found = verify(capsys, path.parent)
    assert status == 1 and "column median_us" in found["checks"][0]["said"]


@pytest.mark.parametrize("change", ["pairs.parquet", "recording.json"])
def test_a_recording_with_other_pairs_is_found(tmp_path, capsys, change):
    folder = shutil.copytree(ROOT / "config/recorded/sm_90", tmp_path / "recorded")
    if change == "recording.json":
        (folder / change).write_text((folder / change).read_text().replace('"arch"', '"arc"'))
    else:
        path = folder / "forward_bf16" / change
        table = parquet.read_table(path)
        beyond = table.set_column(0, "problem", (parquet.read_table(path)["problem"].combine_chunks().cast("int32")))
        wrong = beyond.to_pandas()
        wrong.loc[0, "problem"] = 10**6
        parquet.write_table(beyond.from_pandas(wrong, schema=table.schema, preserve_index=False), path)
    status, found = verify(capsys, folder)
    assert status == 1 and found["failed"] == 1


def test_what_is_nothing_of_ours_is_a_mistake(tmp_path, capsys):
    assert main.main(["verify", str(tmp_path)]) == 2
    assert "model directory" in capsys.readouterr().err
    assert main.main(["verify", str(tmp_path / "absent")]) == 2
    assert main.main(["verify", str(tmp_path / "kernels.so")]) == 2
    assert "--driver" in capsys.readouterr().err
