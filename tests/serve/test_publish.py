"""The published directory: complete, reproducible, and refused when it was changed."""

import hashlib
import json
import shutil
from importlib.metadata import version

import pyarrow as pa
import pytest
from dataset_files import dataset
from packaging.specifiers import SpecifierSet
from published_models import PAGE, let_the_hashes_fit, make
from stages_by_hand import main_of

from tileseer.core import documents, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve import publication
from tileseer.serve.provenance import read_provenance
from tileseer.serve.selector import Selector

OPERATIONS = ("forward", "bwd_weight")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    trainings, evaluations, servings = zip(*(make(folder, variant) for variant in OPERATIONS), strict=True)
    return list(trainings), list(evaluations), list(servings)


@pytest.fixture
def models(made, tmp_path):
    publication.publish_models(*made, tmp_path / "models" / "gfx950", page=PAGE)
    return tmp_path / "models" / "gfx950"


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("threads", [2, 3])
def test_models_evaluations_and_what_is_served_are_the_same_with_any_threads(made, tmp_path, threads):
    training, report, serving = make(tmp_path, "forward", threads)
    assert content(training) == content(made[0][0])
    assert report.read_bytes() == made[1][0].read_bytes()
    assert content(serving) == content(made[2][0])


def test_publishing_again_gives_the_same_bytes_in_any_order(made, models, tmp_path):
    trainings, evaluations, servings = made
    publication.publish_models(trainings[::-1], evaluations, servings, tmp_path / "again", page=PAGE)
    assert content(tmp_path / "again") == content(models)
    before = content(models)
    publication.publish_models(trainings, evaluations, servings, models, page=PAGE)
    assert content(models) == before
    assert [p.name for p in models.parent.iterdir()] == ["gfx950"]


def test_provenance_and_history_are_of_the_models_on_disk(made, tmp_path, monkeypatch):
    trainings, evaluations, servings = (list(map(str, paths)) for paths in made)
    (tmp_path / "hardware.yaml").write_text("1")
    dataset(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    words = ["--training", *trainings, "--evaluation", *evaluations, "--serving", *servings, "--arch", "gfx950"]
    words += ["--operations", "forward_bf16", "--made-from", "data/problems.parquet", "--files", "hardware.yaml"]
    words += ["--template", str(PAGE), "--models", "models", "--history", "history.jsonl", "--workflow", "."]
    for seed, content in enumerate("121"):
        (tmp_path / "hardware.yaml").write_text(content)
        assert main_of("publish")([*words, "--settings", json.dumps({"model": {"seed": seed % 2}})]) == 0
        kept = read_provenance(tmp_path / "models")
        assert kept.files["hardware.yaml"] == hashlib.sha256(content.encode()).hexdigest()
        assert len(publication.read_history(tmp_path / "history.jsonl")) == seed + 1


def test_files_name_no_place(models, tmp_path):
    for name, data in content(models).items():
        assert str(tmp_path).encode() not in data, name


def test_a_missing_and_a_foreign_file_are_refused(models):
    path = models / "grouped_conv_forward_bf16_gfx950" / model_files.SPEC
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(UserError, match="missing"):
        model_files.read_index(models)
    path.write_bytes(kept)
    (models / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        model_files.read_index(models)


def test_what_is_no_model_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"index\.json"):
        model_files.read_index(tmp_path)
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        model_files.read_index(tmp_path)


def test_a_report_of_another_operation_is_refused(made, tmp_path):
    trainings, evaluations, servings = made
    with pytest.raises(UserError, match="forward_bf16"):
        publication.publish_models(trainings[:1], evaluations[1:], servings[:1], tmp_path / "out", page=PAGE)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.iterdir())


def test_kinds_of_device_are_not_mixed_and_no_file_may_miss(made, tmp_path):
    trainings, evaluations, servings = made
    other = shutil.copytree(trainings[1], tmp_path / "other")
    spec = json.loads((other / model_files.SPEC).read_text())
    write_text(other / model_files.SPEC, json.dumps({**spec, "device_kind": "measured"}))
    with pytest.raises(UserError, match="device_kind"):
        publication.publish_models([trainings[0], other], evaluations, servings, tmp_path / "out", page=PAGE)
    less = shutil.copytree(trainings[1], tmp_path / "less")
    (less / model_files.MODEL).unlink()
    with pytest.raises(UserError, match=r"model_tflops\.lgbm"):
        publication.publish_models([less], evaluations[1:], servings[1:], tmp_path / "out", page=PAGE)


def read_forward(models):
    Selector.read(models, "forward_bf16")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (model_files.SPEC, '"tile_m"', '"tile_x"', "features are not those"),
        (model_files.HARDWARE, '"arch": "gfx950"', '"arch": "gfx942"', "arch is gfx942"),
        (model_files.HARDWARE, '"compute_units"', '"units"', "compute_units"),
    ],
)
def test_parts_that_do_not_fit_are_refused_even_with_new_hashes(models, name, old, new, message):
    path = models / "grouped_conv_forward_bf16_gfx950" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    let_the_hashes_fit(models)
    with pytest.raises(UserError, match=message):
        read_forward(models)


def test_a_table_without_a_column_and_another_arch_are_refused(models):
    path = models / "grouped_conv_forward_bf16_gfx950" / model_files.CANDIDATES
    with pytest.raises(UserError, match="for gfx950, not for gfx942"):
        Selector.read(models, "forward_bf16", arch="gfx942")
    parquet.write_table(parquet.read_table(path).drop_columns(["split_k"]), path)
    let_the_hashes_fit(models)
    with pytest.raises(UserError, match="column split_k is missing"):
        read_forward(models)


def test_a_kernel_of_another_library_is_refused_even_with_new_hashes(models):
    path = models / "grouped_conv_forward_bf16_gfx950" / model_files.CANDIDATES
    table = parquet.read_table(path)
    values = pa.array(["cutlass_conv_fwd", *table["kernel"].to_pylist()[1:]])
    parquet.write_table(table.set_column(table.schema.get_field_index("kernel"), "kernel", values), path)
    let_the_hashes_fit(models)
    with pytest.raises(UserError, match=r"candidates.parquet: .* is no kernel of gfx950"):
        read_forward(models)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"format": 3},
            "is of format 3 for tileseer >=0.1,<0.2, but this release reads format 4 for >=0.1,<0.2: publish",
        ),
        (
            {"tileseer": ">=0.3,<0.4"},
            "is of format 4 for tileseer >=0.3,<0.4, but this release reads format 4 for >=0.1,<0.2: publish",
        ),
        ({"device_kind": "guessed"}, "device_kind"),
        ({"operations": {"forward_bf16": {"folder": "../elsewhere"}}}, "folder"),
        ({"sha256": {"a": "b"}}, "sha256"),
    ],
)
def test_an_index_that_does_not_fit_is_refused_by_one_sentence(models, change, said):
    index = json.loads((models / model_files.INDEX).read_text())
    (models / model_files.INDEX).write_text(json.dumps(index | change))
    with pytest.raises(UserError, match=r"index\.json") as refused:
        model_files.read_index(models)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_directory_says_which_versions_of_the_package_read_it(models):
    readers = json.loads((models / model_files.INDEX).read_text())["tileseer"]
    assert SpecifierSet(readers).contains(version("tileseer"))


def test_models_are_text_or_arrow(models):
    for name, data in content(models).items():
        assert data.startswith(b"PAR1") if name.endswith(".parquet") else "\0" not in data.decode(), name


def test_an_escape_of_half_a_character_is_refused(tmp_path):
    path = tmp_path / "kernels.json"
    path.write_text(r'{"pruned": ["\ud800"]}')
    with pytest.raises(UserError, match=r"kernels\.json: is not JSON"):
        documents.read_json(path)
    path.write_text(r'{"pruned": ["\ud83d\ude00"]}')
    assert documents.read_json(path) == {"pruned": ["\U0001f600"]}
