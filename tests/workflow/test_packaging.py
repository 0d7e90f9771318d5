"""The wheel has every file of the package, and answers without Snakemake and without the rest of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from small_workflow import ROOT

PARTS = ("src", "pyproject.toml", "README.md", "LICENSE")
WORKFLOW_ONLY = ("snakemake", "altair", "vl_convert", "msgpack", "elftools", "torch", "onnx")
START = f"""
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


def test_the_wheel_has_every_file_of_the_package(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "tileseer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= inside
    assert any(name.endswith("LICENSE") for name in inside)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["select", "MODELS", "--problem", "N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3", "--top", "1"],
            "device kind: simulated",
        ),
        (["verify", "MODELS"], "0 failed"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_installed_command_answers_without_snakemake(wheel, made, tmp_path, arguments, said):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    models = made[0].folder / "results/models/gfx950"
    words = [str(models) if word == "MODELS" else word for word in arguments]
    environment = os.environ | {"PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert said in run.stdout
