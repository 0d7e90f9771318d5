"""What made a published model: shown by one command, checked, the same for the same inputs."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import dataset_files
import learning_samples as samples
import numpy as np
import published_models
import pyarrow as pa
import pytest

from tileseer.build import registration
from tileseer.build import source_trees as trees
from tileseer.cli.main import main
from tileseer.core import parquet
from tileseer.core.checkout import source_of
from tileseer.core.documents import json_text
from tileseer.data.dataset_files import TABLES
from tileseer.facts.compile import CompileSettings
from tileseer.facts.config import Config
from tileseer.learn import model_files
from tileseer.serve import provenance
from tileseer.serve.provenance import PACKAGES_OF_RESULTS

OPERATION = "forward_bf16"


def git(folder, *words):
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    when = {"GIT_AUTHOR_DATE": "2026-11-20T12:00:00Z", "GIT_COMMITTER_DATE": "2026-11-20T12:00:00Z"}
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, env=when)


@pytest.fixture
def workflow(tmp_path):
    """The checkout of a workflow with one file."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "Snakefile").write_text("rule a:\n")
    git(folder, "init")
    git(folder, "add", "Snakefile")
    git(folder, "commit", "-m", "first")
    return folder


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """A dataset and a table that it was made from, with relative paths as in a workflow."""
    monkeypatch.chdir(tmp_path)
    broken = {(0, 1): "crash"}
    dataset_files.dataset(Path("dataset"), world=samples.table_of([[1, 2], [3, np.nan]], "train", statuses=broken))
    parquet.write_table(pa.table({"status": ["ok"]}), tmp_path / "problems.parquet")
    return [*(Path(f"dataset/{name}.parquet") for name in TABLES), Path("problems.parquet")]


def collect(inputs, workflow, config=None, files=()):
    about = "gfx950", (config or Config()).portable(), {"toolchain": "none"}, [OPERATION], inputs, workflow, files
    return provenance.collect_provenance(*about)


@pytest.fixture
def published(models, tmp_path, inputs, workflow):
    """A model directory that says its origin."""
    folder = shutil.copytree(models, tmp_path / "models")
    (folder / model_files.PROVENANCE).write_text(json_text(collect(inputs, workflow).model_dump(mode="json")))
    published_models.let_the_hashes_fit(folder)
    return folder


def test_it_says_commit_settings_packages_device_counts_and_hashes(inputs, workflow):
    made = collect(inputs, workflow).model_dump(mode="json")
    assert made["source"]["date"] == "2026-11-20" and len(made["source"]["commit"]) == 40
    assert made["config"]["model"]["seed"] == Config().model.seed
    assert made["libc"] == subprocess.check_output(["getconf", "GNU_LIBC_VERSION"], text=True).strip()
    assert set(made["packages"]) == set(PACKAGES_OF_RESULTS) and "not installed" not in made["packages"].values()
    one = made["operations"][OPERATION]
    assert one["measurements"]["device_kind"] == "simulated"
    assert one["measurements"]["pairs_by_status"] == {"crash": 1, "ok": 2}
    for path, digest in one["inputs"].items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    assert list(one["inputs"]) == [path.as_posix() for path in inputs]


def test_uncommitted_files_are_named(workflow, tmp_path):
    assert source_of(workflow).uncommitted == [] and source_of(tmp_path / "absent").commit is None
    (workflow / "Snakefile").write_text("rule b:\n")
    (workflow / "a b ü.txt").write_text("new")
    assert source_of(workflow).uncommitted == ["Snakefile", "a b ü.txt"]
    assert source_of(workflow, ("src",)).uncommitted == []


def test_code_and_files_that_nobody_committed_are_told_apart(inputs, workflow, tmp_path):
    table = tmp_path / "hardware.yaml"
    table.write_text("a: 1\n")

    def told():
        return collect(inputs, workflow, files=[table])

    first = told()
    assert first.files == {table.as_posix(): hashlib.sha256(b"a: 1\n").hexdigest()}
    (workflow / "src/tileseer/learn").mkdir(parents=True)
    (workflow / "src/tileseer/learn/model.py").write_text("x = 1\n")
    second = told()
    (workflow / "src/tileseer/learn/model.py").write_text("x = 2\n")
    assert len({first.code_sha256, second.code_sha256, told().code_sha256}) == 3
    (workflow / "notes.txt").write_text("no code\n")
    assert told().code_sha256 != second.code_sha256 and told() == told()


def test_where_things_are_on_a_machine_is_no_part_of_it(inputs, workflow):
    here = Config(ck={"root": "/opt/x"}, compile={"compiler": "/opt/x/hipcc"}, cache={"folder": "/home/x"})
    text = collect(inputs, workflow, here).model_dump_json()
    assert "/opt/x" not in text and "/home/x" not in text


def test_the_ck_tree_says_its_commit(tmp_path, workflow):
    assert registration.describe_toolchain(CompileSettings(), {}) == {"toolchain": "none"}
    assert trees.tree_commit(workflow) == source_of(workflow).commit
    (tmp_path / "tree/include/ck").mkdir(parents=True)
    assert trees.tree_commit(tmp_path / "tree") is None
    (tmp_path / "tree/include/ck/version.h").write_text("#define CK_COMMIT_ID abc123\n")
    assert trees.tree_commit(tmp_path / "tree") == "abc123"


def test_one_command_prints_it_unless_models_were_changed_or_say_nothing(models, published, capsys):
    assert main(["provenance", str(published)]) == 0
    shown = capsys.readouterr().out
    for part in ("date: '2026-11-20'", "crash: 1", "device_kind: simulated", "toolchain: none", "pairs.parquet"):
        assert part in shown
    assert main(["provenance", str(published), "--json"]) == 0
    written = json.loads((published / model_files.PROVENANCE).read_text())
    assert json.loads(capsys.readouterr().out)["provenance"] == written
    (published / model_files.PROVENANCE).write_text("{}")
    for folder, message in (
        (models, "the origin of the models is missing; publish them again"),
        (published, "provenance.json: the content does not match index.json"),
    ):
        assert main(["provenance", str(folder)]) == 2 and message in capsys.readouterr().err
