"""The way to models of the MIOpen that is installed: what messages advise is run, and one GPU's models are made."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml
from installed_miopen import find_db_lines, write_installation
from small_workflow import tileseer

CALL = re.compile(r"(tileseer run [^;\n]*)")
RADEONS = {"gfx1201_32": "gfx1201_64cu_miopen", "gfx115128": "gfx1151_40cu_miopen", "gfx950100": "gfx950_256cu_miopen"}


@pytest.fixture
def machine(fresh, tmp_path, monkeypatch):
    """A workflow that has not run, on a machine with ROCm."""
    text = "".join(find_db_lines(["forward_fp16"], 100, start=3))
    root = write_installation(tmp_path / "rocm", {f"{name}.HIP.fdb.txt": text for name in RADEONS})
    monkeypatch.setenv("ROCM_PATH", str(root))
    monkeypatch.setenv("MIOPEN_USER_DB_PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("MIOPEN_SYSTEM_DB_PATH", raising=False)
    return fresh


@pytest.mark.parametrize("name", ["gfx1201_miopen", "gfx1201", "gfx1151", "gfx950_miopen", "gfx950", "sm_100_cudnn"])
def test_what_messages_advise_about_models_that_are_missing_does_not_fail(machine, name):
    said = tileseer(machine, "select", f"results/models/{name}", "--problem", "N=8,C=64,K=64,Hi=56,Wi=56")
    assert said.returncode == 2 and said.stderr.count("\n") == 1
    call = CALL.search(said.stderr)
    if call is None:  # nothing makes them: the archs are named
        known = said.stderr.rpartition("there are ")[2].strip().split(", ")
        assert name == "sm_100_cudnn" and "sm_90_cudnn" in known and "gfx1201" not in known
        return
    run = tileseer(machine, *shlex.split(call[1])[1:], "-n")
    assert run.returncode == 0, run.stderr
    assert "would run" in run.stdout
    if name == "gfx950":
        assert "--arch gfx950" in call[1]
        return
    assert "--arch installed_miopen --gpu" in call[1]
    # The same is said where it is run as it stands, at once and not by a job.
    refused = tileseer(machine, "run", "--arch", name, "-n")
    assert refused.returncode != 0 and call[1] in refused.stdout + refused.stderr


def test_the_models_of_an_installed_miopen_are_made_by_one_command(machine):
    run = tileseer(machine, "run", "--arch", "installed_miopen", "--gpu", "gfx1201", "--cores", "2")
    assert run.returncode == 0, run.stderr
    arch = RADEONS["gfx1201_32"]
    index = json.loads(machine.read(f"results/models/{arch}/index.json"))
    assert (index["arch"], index["device_kind"], list(index["operations"])) == (arch, "recorded", ["forward_fp16"])
    assert b"MIOpen 3.5.2" in machine.read(f"results/reports/{arch}.html")
    assert "on this machine, for the version that is installed:" in run.stdout
    config = yaml.safe_load(machine.read("results/installed/miopen/config.yaml"))
    assert config["benchmark"]["products"] == {arch: "gfx1201_9070xt"}
