"""The published directory: complete, reproducible, refused when changed, and there until its successor is whole."""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import time

import pytest
from dataset_files import dataset
from published_models import PAGE, make
from stages_by_hand import main_of

from tileseer.core import atomic, parquet
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.learn.learners.trees.scorer import MODEL
from tileseer.learn.model import Model
from tileseer.serve import publication
from tileseer.serve.provenance import read_provenance
from tileseer.serve.selector import Selector
from tileseer.serve.serving_files import KNOWN_PROBLEMS

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


def test_a_dataset_that_the_model_was_not_trained_on_is_no_provenance(both, tmp_path, monkeypatch, capfd):
    trainings, evaluations, servings = both
    dataset(tmp_path / "data")
    training = tmp_path / "training"
    shutil.copytree(trainings[0], training)
    manifest = training / model_files.MANIFEST
    learnt = json.loads(manifest.read_text()) | {"dataset": {"problems.parquet": "0" * 64}}
    manifest.write_text(json.dumps(learnt))
    monkeypatch.chdir(tmp_path)
    words = ["--training", str(training), "--evaluation", str(evaluations[0]), "--serving", str(servings[0])]
    words += ["--arch", "gfx950", "--operations", FORWARD, "--made-from", "data/problems.parquet", "--models", "models"]
    assert main_of("publish")([*words, "--template", str(PAGE), "--workflow", "."]) == 2
    assert "data/problems.parquet: is another table than the model was trained on" in capfd.readouterr().err
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("name", [MODEL, model_files.SPEC, model_files.CANDIDATES])
def test_a_training_with_a_file_of_another_one_is_refused(forward, tmp_path, name):
    training = tmp_path / "training"
    shutil.copytree(forward[0], training)
    path = training / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(UserError, match=rf"{name}: (its SHA-256 is not that in {model_files.MANIFEST}|.*Parquet)"):
        Model.read(training)


def test_files_are_text_or_arrow_and_name_no_place(models, tmp_path):
    for name, data in content(models).items():
        assert str(tmp_path).encode() not in data, name
        assert data.startswith(b"PAR1") if name.endswith(".parquet") else "\0" not in data.decode(), name


def test_parts_that_do_not_belong_together_are_refused_and_nothing_is_left(both, tmp_path):
    trainings, evaluations, servings = both

    def changed(name, file, content):
        folder = shutil.copytree(trainings[1], tmp_path / "parts" / name)
        (folder / file).unlink() if content is None else (folder / file).write_text(content)
        return folder

    spec = (trainings[1] / model_files.SPEC).read_text()
    other = changed("other", model_files.SPEC, spec.replace('"simulated"', '"measured"'))
    less, damaged = changed("less", MODEL, None), changed("damaged", model_files.MANIFEST, "{")
    for parts, message in (
        ((trainings[:1], evaluations[1:], servings[:1]), "forward_bf16"),
        (([trainings[0], other], evaluations, servings), "device_kind"),
        (([less], evaluations[1:], servings[1:]), r"model_tflops\.lgbm"),
        (([damaged], evaluations[1:], servings[1:]), rf"{model_files.MANIFEST}: is not JSON"),
    ):
        with pytest.raises(UserError, match=message):
            publication.publish_models(*parts, tmp_path / "out", page=PAGE)
        assert [path.name for path in tmp_path.iterdir()] == ["parts"]


@pytest.fixture(scope="module")
def other(forward, tmp_path_factory):
    """The same of forward, but two files say that it is another version: no problem is known, no kernel pruned."""
    training, report, serving = forward
    copy = tmp_path_factory.mktemp("other") / serving.name
    shutil.copytree(serving, copy)
    kernels = copy / model_files.KERNELS
    kernels.write_text(json.dumps(json.loads(kernels.read_text()) | {"pruned": []}))
    parquet.write_table(KNOWN_PROBLEMS.empty_table(), copy / model_files.KNOWN)
    return training, report, copy


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
        selector = Selector.read(models, FORWARD)
        # The files are of one version.
        assert bool(selector.known.num_rows) == selector.pruned.any()


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


@pytest.mark.parametrize("name", ["index.json", f"grouped_conv_{FORWARD}_gfx950/kernels.json"])
def test_a_damaged_file_is_written_again(forward, weight, models, name):
    before = content(models)
    for damage in (b"", b"nonsense", None):
        (models / name).unlink() if damage is None else (models / name).write_bytes(damage)
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
