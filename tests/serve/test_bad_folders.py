"""Recordings and model directories of others: read, or refused by a message that names the file."""

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damage import damaged, damaged_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from published_models import let_the_hashes_fit

from tileseer.cli import main, targets
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.config import Config
from tileseer.learn import model_files
from tileseer.problems.operation import Operation
from tileseer.serve.selector import Selector

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "config/recorded/sm_90"
OPERATION = Operation.parse("forward_bf16")
DRAWS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused_or_read(read, folder, *names):
    """Call ``read``; a refusal has to name a file of the folder."""
    before = sorted(folder.rglob("*"))
    try:
        read()
    except UserError as error:
        assert any(name in str(error) for name in (*names, folder.name)), error
    assert sorted(folder.rglob("*")) == before


@pytest.fixture
def recorded(tmp_path):
    return shutil.copytree(RECORDED, tmp_path / "recording", ignore=shutil.ignore_patterns("bwd_*"))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda text, rows: (text.replace('"arch": "sm_90', '"arch": "sm_80'), rows),
            "device: should be a product of sm_80",
        ),
        (lambda text, rows: (None, rows), "recording.json: there is no such file, which says what was measured"),
        (lambda text, rows: (text, rows[:0]), "pairs.parquet: there is no row in it"),
    ],
)
def test_a_recording_of_another_arch_or_of_nothing(spoil, says, recorded):
    described, pairs = recorded / "recording.json", recorded / str(OPERATION) / "pairs.parquet"
    text, rows = spoil(described.read_text(), pq.read_table(pairs))
    described.write_text(text) if text else described.unlink()
    pq.write_table(rows, pairs)
    with pytest.raises(UserError, match=says):
        read_recorded(recorded)


def read_recorded(folder):
    return Dataset.read(folder / str(OPERATION))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("problems", "stride_h", 0, "stride_h is 0"),
        ("problems", "N", 7, "keys of problems"),
        ("problems", "N", 2**31 - 1, "too large, since N Di Hi Wi is"),
        ("problems", "ndim", 3, "keys of problems"),
        ("pairs", "median_us", 0, "row 0, median_us is 0.0, which cannot be"),
        ("pairs", "median_us", float("inf"), "median_us is inf"),
        ("pairs", "median_us", 4e9, "median_us is 4000000000.0"),
        ("pairs", "cv", float("inf"), "cv is inf"),
        ("pairs", "split_k", 0, "split_k is 0"),
        ("problems", "layer", "a\nb", "layer is"),
        ("kernels", "kernel", 'x"; evil();', "kernel name|names that begin"),
        ("pairs", "problem", -3, "problem is -3, which cannot be"),
    ],
)
def test_a_readable_table_of_a_recording_with_a_wrong_value(table, column, value, message, recorded):
    path = recorded / str(OPERATION) / f"{table}.parquet"
    rows = pq.read_table(path).to_pandas()
    rows.loc[rows.index[rows.get("status", pd.Series("ok", rows.index)) == "ok"][0], column] = value
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path)
    with pytest.raises(UserError, match=message):
        read_recorded(recorded)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("column", ["cv", "sentinel"])
def test_a_signalling_nan_in_a_recording_is_a_nan(column, recorded):
    path = recorded / str(OPERATION) / "pairs.parquet"
    pairs = pq.read_table(path)
    values = pairs[column].to_numpy().copy()
    values.view("uint32")[5] = 0x7F800001
    pq.write_table(pairs.set_column(pairs.schema.get_field_index(column), column, pa.array(values)), path)
    assert len(read_recorded(recorded).problem)


def read_models(folder):
    Selector.read(folder, str(OPERATION))


def copied(models, tmp_path):
    folder = tmp_path / "published"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(models, folder)
    return folder


@pytest.mark.parametrize("fitting", [False, True], ids=["hashes of before", "hashes that fit"])
@DRAWS
@given(data=st.data())
def test_damage_in_a_model_directory_is_refused_or_harmless(fitting, data, models, tmp_path):
    folder = copied(models, tmp_path)
    files = [file for file in folder.rglob("[!.]*") if file.is_file() and (not fitting or file.suffix == ".json")]
    path = data.draw(st.sampled_from(sorted(files)))
    before, content = path.read_bytes(), damaged(data, path) if fitting else damaged_bytes(data, path.read_bytes())
    path.write_bytes(content)
    if fitting and path.name != model_files.INDEX:
        let_the_hashes_fit(folder)
    if fitting or content == before or path.name == model_files.INDEX:
        refused_or_read(lambda: read_models(folder), folder, path.name)
    else:
        with pytest.raises(UserError, match=path.name.replace(".", r"\.")):
            read_models(folder)


def replaced(old, new):
    def change(path):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def with_table(change):
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def with_foreign_kernel(table):
    values = pa.array(["cutlass_conv_fwd", *table["kernel"].to_pylist()[1:]])
    return table.set_column(table.schema.get_field_index("kernel"), "kernel", values)


def with_fields(**fields):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | fields))


OWN, READS = (
    f"grouped_conv_{OPERATION}_gfx950/",
    f"but this release reads format {model_files.FORMAT} for >=0.1,<0.2: publish",
)
MESSAGES = [
    # A file, what is done to it, whether the hashes are made to fit, and what is said.
    (OWN + model_files.SPEC, Path.unlink, False, "missing"),
    ("notes.txt", Path.touch, False, "notes.txt"),
    (OWN + model_files.SPEC, replaced('"tile_m"', '"tile_x"'), True, "features are not those"),
    (OWN + model_files.HARDWARE, replaced('"arch": "gfx950"', '"arch": "gfx942"'), True, "arch is gfx942"),
    (OWN + model_files.HARDWARE, replaced('"compute_units"', '"units"'), True, "compute_units"),
    (OWN + model_files.CANDIDATES, with_table(lambda table: table.drop_columns(["split_k"])), True,
     "column split_k is missing"),
    (OWN + model_files.CANDIDATES, with_table(with_foreign_kernel), True, "'cutlass_conv_fwd' is no kernel of gfx950"),
    (model_files.INDEX, lambda path: path.write_text("[]"), False, "is no index of models; publish the models again"),
    (model_files.INDEX, with_fields(device="gfx950_mi350x"), False, "device is gfx950_mi350x, but the models are of"),
    (model_files.INDEX, Path.unlink, False, "copy all of its files, or publish the models again"),
    (model_files.INDEX, with_fields(format=3), False, f"is of format 3 for tileseer >=0.1,<0.2, {READS}"),
    (model_files.INDEX, with_fields(tileseer=">=0.3,<0.4"), False, f"for tileseer >=0.3,<0.4, {READS}"),
    (model_files.INDEX, with_fields(device_kind="guessed"), False, "device_kind"),
    (model_files.INDEX, with_fields(operations={"forward_bf16": {"folder": "../elsewhere"}}), False, "folder"),
    (model_files.INDEX, with_fields(sha256={"a": "b"}), False, "sha256"),
]  # fmt: skip


def test_what_is_wrong_with_a_model_directory_is_said(models, tmp_path):
    for name, change, fitting, message in MESSAGES:
        folder = copied(models, tmp_path)
        change(folder / name)
        if fitting:
            let_the_hashes_fit(folder)
        with pytest.raises(UserError) as refused:
            read_models(folder)
        said = str(refused.value)
        assert message in said and Path(name).name in said and (fitting or "\n" not in said), said
    with pytest.raises(UserError, match="for gfx950, not for gfx942"):
        Selector.read(models, str(OPERATION), arch="gfx942")
    readers = json.loads((models / model_files.INDEX).read_text())["tileseer"]
    assert SpecifierSet(readers).contains(version("tileseer"))


@pytest.mark.parametrize("name", [model_files.CANDIDATES, model_files.KNOWN])
def test_an_empty_column_in_a_model_directory_whose_hashes_fit(name, models, tmp_path, capfd):
    folder = copied(models, tmp_path)
    (path,) = folder.rglob(name)
    sound = pq.read_table(path)
    problem = "N=2,C=64,K=64,Hi=14,Wi=14"
    for number, column in enumerate(sound.column_names):
        kind = sound.schema.field(column).type
        pq.write_table(sound.set_column(number, pa.field(column, kind), pa.nulls(len(sound), kind)), path)
        let_the_hashes_fit(folder)
        # It reads all that ``select`` does, and more.
        words = ["explain", str(folder), "--problem", problem, "--variant", "forward", "--dtype", "bf16"]
        status = main.main(words)
        said = capfd.readouterr().err
        assert status in (0, 1) or (status == 2 and path.name in said and said.count("\n") == 1), (column, said)


def test_a_run_publishes_damaged_models_again(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(models, tmp_path / "results/models/gfx950").relative_to(tmp_path)
    assert targets.damaged(Config(), ["gfx950", "sm_90"]) == {}
    header = next(copy.rglob("selector.hpp"))
    header.write_text(header.read_text()[:3000])
    assert targets.damaged(Config(), ["gfx950"]) == {str(copy): f"{header}: the content does not match index.json"}
