"""The published directory: complete, reproducible, refused when changed, and there until its successor is whole."""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import time
from importlib.metadata import version

import pyarrow as pa
import pytest
from dataset_files import dataset
from packaging.specifiers import SpecifierSet
from publications import other_version, read_once
from published_models import PAGE, let_the_hashes_fit, make
from stages_by_hand import main_of

from tileseer.core import atomic, parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve import publication
from tileseer.serve.provenance import read_provenance
from tileseer.serve.selector import Selector

KILLS, READS = 12, 30
FORWARD, WEIGHT = "forward_bf16", "bwd_weight_bf16"


@pytest.fixture
def both(forward, weight):
    """Trainings, evaluations and serving folders of two operations."""
    return [*map(list, zip(forward, weight, strict=True))]


@pytest.fixture
def models(both, tmp_path):
    """A model directory of both, to change."""
    publication.publish_models(*both, tmp_path / "models" / "gfx950", page=PAGE)
    return tmp_path / "models" / "gfx950"


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_models_evaluations_and_what_is_served_are_the_same_with_any_threads(forward, tmp_path):
    training, report, serving = make(tmp_path, "forward", threads=3)
    assert content(training) == content(forward[0])
    assert report.read_bytes() == forward[1].read_bytes()
    assert content(serving) == content(forward[2])


def test_publishing_again_gives_the_same_bytes_in_any_order(both, models, tmp_path):
    trainings, evaluations, servings = both
    publication.publish_models(trainings[::-1], evaluations, servings, tmp_path / "again", page=PAGE)
    assert content(tmp_path / "again") == content(models)
    before = content(models)
    publication.publish_models(trainings, evaluations, servings, models, page=PAGE)
    assert content(models) == before
    assert [p.name for p in models.parent.iterdir()] == ["gfx950"]


def test_provenance_is_of_the_models_on_disk(both, tmp_path, monkeypatch):
    trainings, evaluations, servings = (list(map(str, paths)) for paths in both)
    (tmp_path / "hardware.yaml").write_text("1")
    dataset(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    words = ["--training", *trainings, "--evaluation", *evaluations, "--serving", *servings, "--arch", "gfx950"]
    words += ["--operations", "forward_bf16", "--made-from", "data/problems.parquet", "--files", "hardware.yaml"]
    words += ["--template", str(PAGE), "--models", "models", "--workflow", "."]
    for seed, content in enumerate("121"):
        (tmp_path / "hardware.yaml").write_text(content)
        assert main_of("publish")([*words, "--settings", json.dumps({"model": {"seed": seed % 2}})]) == 0
        kept = read_provenance(tmp_path / "models")
        assert kept.files["hardware.yaml"] == hashlib.sha256(content.encode()).hexdigest()


def test_files_are_text_or_arrow_and_name_no_place(models, tmp_path):
    for name, data in content(models).items():
        assert str(tmp_path).encode() not in data, name
        assert data.startswith(b"PAR1") if name.endswith(".parquet") else "\0" not in data.decode(), name


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


def test_a_report_of_another_operation_is_refused(both, tmp_path):
    trainings, evaluations, servings = both
    with pytest.raises(UserError, match="forward_bf16"):
        publication.publish_models(trainings[:1], evaluations[1:], servings[:1], tmp_path / "out", page=PAGE)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.iterdir())


def test_kinds_of_device_are_not_mixed_and_no_file_may_miss(both, tmp_path):
    trainings, evaluations, servings = both
    other = shutil.copytree(trainings[1], tmp_path / "other")
    spec = json.loads((other / model_files.SPEC).read_text())
    write_text(other / model_files.SPEC, json.dumps({**spec, "device_kind": "measured"}))
    with pytest.raises(UserError, match="device_kind"):
        publication.publish_models([trainings[0], other], evaluations, servings, tmp_path / "out", page=PAGE)
    less = shutil.copytree(trainings[1], tmp_path / "less")
    (less / model_files.MODEL).unlink()
    with pytest.raises(UserError, match=r"model_tflops\.lgbm"):
        publication.publish_models([less], evaluations[1:], servings[1:], tmp_path / "out", page=PAGE)
    damaged = shutil.copytree(trainings[1], tmp_path / "damaged")
    (damaged / model_files.MANIFEST).write_text("{")
    with pytest.raises(UserError, match=rf"{model_files.MANIFEST}: is not JSON"):
        publication.publish_models([damaged], evaluations[1:], servings[1:], tmp_path / "out", page=PAGE)


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
            "is of format 3 for tileseer >=0.1,<0.2, but this release reads format 5 for >=0.1,<0.2: publish",
        ),
        (
            {"tileseer": ">=0.3,<0.4"},
            "is of format 5 for tileseer >=0.3,<0.4, but this release reads format 5 for >=0.1,<0.2: publish",
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


@pytest.fixture(scope="module")
def other(forward, tmp_path_factory):
    """The same of forward, but the selector and the list of its kernels say that they are another version."""
    training, report, serving = forward
    return training, report, other_version(serving, tmp_path_factory.mktemp("other") / serving.name)


def publish(models, *parts):
    return publication.publish_models(*map(list, zip(*parts, strict=True)), models, page=PAGE)


def in_a_process(action):
    child = os.fork()
    if child:
        return child
    try:
        action()
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)


def read_often(models, reads):
    for _ in range(reads):
        read_once(models, FORWARD)


@pytest.mark.parametrize("exchange", [True, False], ids=["one exchange", "two renames"])
def test_kills_of_publications_beside_readers(forward, other, tmp_path, monkeypatch, exchange):
    models = tmp_path / "models" / "gfx950"
    start = time.perf_counter()
    publish(models, forward)
    took = time.perf_counter() - start
    draw = random.Random(1)
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    reader = in_a_process(lambda: read_often(models, READS)) if exchange else None
    killed, ended = 0, (0, 0) if reader else (1, 0)
    while killed < KILLS or not ended[0]:
        parts = draw.choice((forward, other))
        child = in_a_process(lambda parts=parts: publish(models, parts))
        time.sleep(draw.uniform(0, 1.5 * took))
        os.kill(child, signal.SIGKILL)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
        if reader and not ended[0]:
            ended = os.waitpid(reader, os.WNOHANG)
        if exchange:
            model_files.read_index(models)
    assert ended[1] == 0
    publish(models, forward)
    assert [path.name for path in models.parent.glob("[!.]*")] == ["gfx950"]
    read_often(models, 1)


def test_a_directory_has_the_operations_of_its_last_publication(forward, weight, tmp_path):
    models = tmp_path / "gfx950"
    publish(models, forward, weight)
    assert set(publish(models, forward).operations) == {FORWARD}
    assert [path.name for path in models.iterdir() if path.is_dir()] == [f"grouped_conv_{FORWARD}_gfx950"]
    read_often(models, 1)


@pytest.mark.parametrize("name", ["index.json", f"grouped_conv_{FORWARD}_gfx950/serving.json"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", None], ids=["empty", "foreign", "missing"])
def test_a_damaged_file_is_written_again(forward, weight, tmp_path, name, damage):
    models = tmp_path / "gfx950"
    publish(models, forward, weight)
    before = content(models)
    (models / name).unlink()
    if damage is not None:
        (models / name).write_bytes(damage)
    with pytest.raises(UserError, match="json"):
        model_files.read_index(models)
    publish(models, forward, weight)
    assert content(models) == before


def test_a_publication_that_fails_leaves_what_was_published(forward, weight, tmp_path, monkeypatch):
    models = tmp_path / "gfx950"
    publish(models, forward)
    before = content(models)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publication.documents, "write_document", full)
    with pytest.raises(OSError, match="gfx950"):
        publish(models, weight)
    assert content(models) == before and [path.name for path in tmp_path.iterdir()] == ["gfx950"]
