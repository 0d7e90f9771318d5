"""What was published stays until its successor is whole: beside readers, kills, damage and runs of other operations."""

import errno
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from publications import other_version, read_once
from published_models import PAGE, make

from tileseer.core import atomic
from tileseer.core.checkout import Source
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.serve import publication
from tileseer.serve.provenance import FORMAT, Provenance, read_earlier_provenance, read_provenance
from tileseer.serve.selector import Selector

PROVENANCE = Provenance(
    format=FORMAT,
    arch="gfx950",
    tileseer="1",
    source=Source(commit=None, uncommitted=None),
    python="3",
    packages={},
    config={},
    compiler={},
    operations={},
)
KILLS, READS = 30, 60
FORWARD, WEIGHT = "forward_bf16", "bwd_weight_bf16"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Training, report and serving folder of each operation."""
    folder = tmp_path_factory.mktemp("made")
    return {f"{variant}_bf16": make(folder, variant) for variant in ("forward", "bwd_weight")}


@pytest.fixture(scope="module")
def other(made, tmp_path_factory):
    """The same of forward, but the selector and the list of its kernels say that they are another version."""
    training, report, serving = made[FORWARD]
    return training, report, other_version(serving, tmp_path_factory.mktemp("other") / serving.name)


def publish(models, *parts, provenance=None):
    return publication.publish_models(*map(list, zip(*parts, strict=True)), models, provenance, page=PAGE)


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


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
def test_kills_of_publications_beside_readers(made, other, tmp_path, monkeypatch, exchange):
    models = tmp_path / "models" / "gfx950"
    start = time.perf_counter()
    publish(models, made[FORWARD])
    took = time.perf_counter() - start
    draw = random.Random(1)
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    reader = in_a_process(lambda: read_often(models, READS)) if exchange else None
    killed, ended = 0, (0, 0) if reader else (1, 0)
    while killed < KILLS or not ended[0]:
        parts = draw.choice((made[FORWARD], other))
        child = in_a_process(lambda parts=parts: publish(models, parts))
        time.sleep(draw.uniform(0, 1.5 * took))
        os.kill(child, signal.SIGKILL)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
        if reader and not ended[0]:
            ended = os.waitpid(reader, os.WNOHANG)
        if exchange:
            model_files.read_index(models)
    assert ended[1] == 0
    publish(models, made[FORWARD])
    assert [path.name for path in models.parent.glob("[!.]*")] == ["gfx950"]
    read_often(models, 1)


def test_a_run_of_one_operation_leaves_the_others_as_they_are(made, other, tmp_path):
    models = tmp_path / "gfx950"
    first, second, third = (PROVENANCE.model_copy(update={"tileseer": version}) for version in "123")
    publish(models, *made.values(), provenance=first)
    before = content(models)
    folder = f"grouped_conv_{WEIGHT}_gfx950"
    for provenance in (second, third):
        index = publish(models, other, provenance=provenance)
        assert set(index.operations) == {FORWARD, WEIGHT}
        after = content(models)
        assert {name: after[name] for name in before if name.startswith(folder)} == {
            name: data for name, data in before.items() if name.startswith(folder)
        }
        assert index.operations[WEIGHT].provenance == f"{folder}/provenance.json"
        assert read_earlier_provenance(models) == {WEIGHT: first}
        assert read_provenance(models) == read_provenance(models, FORWARD) == provenance
        Selector.read(models, WEIGHT)
    publish(models, *made.values(), provenance=first)
    assert content(models) == before


def test_another_device_replaces_all(made, tmp_path):
    models = tmp_path / "gfx950"
    publish(models, *made.values())
    path = models / model_files.INDEX
    path.write_text(path.read_text().replace('"simulated"', '"recorded"'))
    assert set(publish(models, made[FORWARD]).operations) == {FORWARD}


@pytest.mark.parametrize("name", ["index.json", f"grouped_conv_{FORWARD}_gfx950/serving.json"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", None], ids=["empty", "foreign", "missing"])
def test_a_damaged_file_is_written_again(made, tmp_path, name, damage):
    models = tmp_path / "gfx950"
    publish(models, *made.values())
    before = content(models)
    (models / name).unlink()
    if damage is not None:
        (models / name).write_bytes(damage)
    with pytest.raises(UserError, match="json"):
        model_files.read_index(models)
    publish(models, *made.values())
    assert content(models) == before


@pytest.mark.parametrize("name", ["index.json", "provenance.json", f"grouped_conv_{WEIGHT}_gfx950/serving.json"])
@pytest.mark.parametrize("damage", [b"nonsense", None], ids=["foreign", "missing"])
def test_damage_that_a_run_of_other_operations_cannot_mend_is_named(made, tmp_path, name, damage):
    models = tmp_path / "gfx950"
    publish(models, *made.values(), provenance=PROVENANCE)
    (models / name).unlink()
    if damage is not None:
        (models / name).write_bytes(damage)
    before = content(models)
    with pytest.raises(UserError) as refused:
        publish(models, made[FORWARD])
    assert str(models / name) in str(refused.value) and content(models) == before
    assert [path.name for path in tmp_path.iterdir()] == ["gfx950"]
    # What the message proposes works.
    shutil.rmtree(models / f"grouped_conv_{WEIGHT}_gfx950")
    assert set(publish(models, made[FORWARD]).operations) == {FORWARD}
    read_often(models, 1)


def test_a_publication_that_fails_leaves_what_was_published(made, tmp_path, monkeypatch):
    models = tmp_path / "gfx950"
    publish(models, made[FORWARD])
    before = content(models)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publication.documents, "write_document", full)
    with pytest.raises(OSError, match="gfx950"):
        publish(models, made[WEIGHT])
    assert content(models) == before and [path.name for path in tmp_path.iterdir()] == ["gfx950"]


@pytest.mark.parametrize("before", [None, "", "torn", "{}\ntorn", "{}\n"])
def test_the_history_grows_by_whole_lines(made, tmp_path, capsys, before):
    path = tmp_path / "history.jsonl"
    if before is not None:
        path.write_text(before)
    models = tmp_path / "gfx950"
    publish(models, made[FORWARD])
    for _ in range(2):
        publication.append_publication(path, models, PROVENANCE.model_copy(update={"operations": {}}))
    first, entry = publication.read_history(path)
    assert first.models_sha256 == entry.models_sha256 == publication.digest_of_models(models) != ""
    assert path.read_text().startswith(before or "") and path.read_text().endswith(entry.model_dump_json() + "\n")
    assert ("is skipped" in capsys.readouterr().err) == bool(before)


@pytest.mark.parametrize("hostile", ["folder", "fifo", "read-only disk"])
def test_a_history_that_cannot_be_written_is_a_warning(made, tmp_path, capsys, monkeypatch, hostile):
    path = tmp_path / "history.jsonl"
    publish(tmp_path / "gfx950", made[FORWARD])
    if hostile == "folder":
        path.mkdir()
    elif hostile == "fifo":
        os.mkfifo(path)
    else:
        path = Path("/proc/history.jsonl")
    publication.append_publication(path, tmp_path / "gfx950", PROVENANCE)
    assert "this publication is not in the history" in capsys.readouterr().err
