"""The wheel has every file of package and workflow, and works from any folder without the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest
import yaml
from small_workflow import ROOT, TARGETS, Workflow, hashes, small_config

SHIPPED = ("Snakefile", "config", "profiles", "workflow")
PARTS = ("src", "pyproject.toml", "setup.py", "envs", "README.md", "LICENSE", *SHIPPED)
WORKFLOW_ONLY = ("snakemake", "msgpack", "elftools", "torch", "onnx")
WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {WORKFLOW_ONLY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from tileseer.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, folder / part)
    script = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    run = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install the wheel into an environment that borrows the other packages of this one; return how to call it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "borrowed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    for name, module in (("snakemake", "snakemake.cli"), ("tileseer", "tileseer.cli.main")):
        script = folder / "bin" / name
        script.write_text(f"#!{folder}/bin/python\nfrom {module} import main\nraise SystemExit(main())\n")
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SNAKEMAKE"))}
    environment = kept | {"PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}"}

    def call(cwd, *words):
        command = [folder / "bin" / words[0], *words[1:]]
        run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout + run.stderr

    return call


def test_the_wheel_has_every_file_of_the_package_and_of_the_workflow_but_recordings(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    files = [path for part in ("src/tileseer", *SHIPPED) for path in (ROOT / part, *(ROOT / part).rglob("*"))]
    names = {path.relative_to(ROOT).as_posix() for path in files if path.is_file() and "__pycache__" not in path.parts}
    names = {name for name in names if not name.startswith("config/recorded/")}
    wanted = {name.removeprefix("src/") if name.startswith("src/") else f"tileseer/shipped/{name}" for name in names}
    assert wanted <= inside
    assert any(name.endswith("LICENSE") for name in inside)
    assert not any("config/recorded" in name for name in inside) and wheel.stat().st_size < 4 * 2**20


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("select", "--problem N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3 --top 1", "device kind: simulated"),
        ("verify", "", "0 failed"),
    ],
)
def test_the_installed_command_answers_without_snakemake(installed, made, tmp_path, command, options, said):
    models = str(made[0].folder / "results/models/gfx950")
    assert said in installed(tmp_path, "python", "-c", WITHOUT, command, models, *options.split())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("codegen --arch gfx950 --rule-set tiny --variant bwd_weight --ndim 2 --dtype bf16 --output out", "9 kernels"),
        (f"verify {ROOT}/config/recorded/sm_90", "0 failed"),
        ("doctor", "lightgbm"),
    ],
)
def test_tables_and_templates_come_from_the_package(installed, tmp_path, call, said):
    assert said in installed(tmp_path, "tileseer", *call.split())


def test_a_study_runs_the_workflow_of_the_package(installed, made, tmp_path):
    assert "my-study && tileseer run" in installed(tmp_path, "tileseer", "init", "my-study")
    study = tmp_path / "my-study"
    assert (study / "config/config.yaml").read_bytes() == (ROOT / "config/config.yaml").read_bytes()
    planned = installed(study, "tileseer", "run", "--dry-run")
    assert "bwd_weight_bf16" in planned or "configs" in planned
    # The same small world as in the checkout, its tables in the study: everything is the same, byte for byte, though
    # each of its processes has another seed of hashes, and another number of cores.
    world = made[0].folder
    for name in ("config/rule_sets/small.yaml", "config/problems/small.yaml", "config/problems/small.csv"):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(world / name, study / name)
    # What the models are checked on; the package has no recordings.
    shutil.copytree(world / "config/recorded/gfx950_mi355x", study / "config/recorded/gfx950_mi355x")
    (study / "config/config.yaml").write_text(yaml.safe_dump(small_config(study)))
    installed(study, "snakemake", "--cores", "1", *TARGETS)
    assert hashes(Workflow(study)) == hashes(made[0])
    assert "Nothing to be done" in installed(study, "snakemake", "--cores", "2", *TARGETS)


def test_a_study_is_not_written_over_another(installed, tmp_path):
    installed(tmp_path, "tileseer", "init", "my-study")
    with pytest.raises(AssertionError, match="my-study: exists already and is no empty folder"):
        installed(tmp_path, "tileseer", "init", "my-study")
