"""``tileseer doctor`` on machines that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tileseer.build import compiler
from tileseer.cli import doctor
from tileseer.cli.main import main
from tileseer.facts.config import check
from tileseer.measure.harness import telemetry
from tileseer.measure.harness.telemetry import VARIABLES, Board

ROOT = Path(__file__).parents[2]
HIP = {"arch": "gfx950", "compile": {"toolchain": "hipcc"}, "benchmark": {"device": "hip"}}


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine with nothing on it."""
    monkeypatch.chdir(ROOT)
    for variable in ("PATH", "ROCM_PATH", "CUDA_HOME", "CUDA_PATH", "CUTLASS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in VARIABLES["hip"]:
        monkeypatch.delenv(variable, raising=False)
    # Installs lie outside of what the environment names.
    monkeypatch.setitem(compiler.VENDORS, "nvcc", replace(compiler.NVCC, places=list))
    nowhere = {device: (tmp_path / "none", fix) for device, (_, fix) in telemetry.DRIVERS.items()}
    monkeypatch.setattr(telemetry, "DRIVERS", nowhere)


def found(**sections):
    """The findings for a configuration with these sections, by subject; the faults of a run are under one."""
    problems = {"networks": "config/problems/smoke.csv", "validation": "config/problems/smoke.csv"}
    rows = {}
    for finding in doctor.find_all(check(sections | {"problems": problems}), Path("config")):
        rows.setdefault(finding.subject, finding)
    return rows


def test_what_is_missing_is_needed_only_where_the_configuration_asks_for_it():
    assert {row.status for row in found().values()} == {"ok", "missing"}
    rows = found(**HIP)
    for subject, fix in {
        "HIP compiler": "make toolchain", "Composable Kernel tree": "make toolchain", "hip GPUs": "--device /dev/kfd",
    }.items():  # fmt: skip
        assert rows[subject].status == "needed" and fix in rows[subject].fix
    assert rows["CUDA compiler"].status == rows["CUTLASS headers"].status == "missing"
    rows = found(compile={"toolchain": "nvcc"}, cutlass={"root": "/nowhere"}, arch="sm_90", replays={})
    assert rows["HIP compiler"].status == "missing"
    for subject in ("CUDA compiler", "CUTLASS headers"):
        assert rows[subject].status == "needed" and "make cuda-toolchain" in rows[subject].fix


def test_what_a_run_would_refuse_is_needed():
    row = found(configs={"rule_set": "config/rule_sets/sweeep.yaml"})["configuration"]
    assert row.status == "needed" and row.result.startswith("configs.rule_set: config/rule_sets/sweeep.yaml: there is")
    assert row.fix.startswith("sets with a name")


def test_gpus_are_listed_and_those_of_another_arch_told(monkeypatch, tmp_path):
    monkeypatch.setattr(telemetry, "amd_boards", lambda smi=None: [Board("GPU-1", "0000:c1:00.0", "gfx942")])
    monkeypatch.setitem(telemetry.DRIVERS, "hip", (tmp_path, ""))
    rows = found(**HIP)
    assert (rows["hip GPUs"].status, rows["hip GPUs"].result) == ("ok", "gfx942 at 0000:c1:00.0")
    assert "the visible GPUs are gfx942, not gfx950" in rows["configuration"].result
    assert rows["configuration"].fix.startswith("give --config arch=gfx942")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    hidden = found(**HIP)["hip GPUs"]
    assert hidden.status == "needed" and "HIP_VISIBLE_DEVICES='3'" in hidden.result
    assert hidden.fix.startswith("unset it")


def test_the_exit_status_says_whether_something_needed_is_missing(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text("compile: {toolchain: none}\n")
    assert main(["doctor", "--configfile", str(config)]) == 0
    config.write_text("compile: {toolchain: hipcc}\n")
    capsys.readouterr()
    assert main(["doctor", "--configfile", str(config), "--json"]) == 1
    rows = {row["subject"]: row for row in json.loads(capsys.readouterr().out)["findings"]}
    assert rows["HIP compiler"]["status"] == "needed"
