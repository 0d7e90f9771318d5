"""``tileseer doctor`` on machines that lack something."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tileseer.cli.main import main
from tileseer.client import doctor
from tileseer.compile import compiler
from tileseer.devices.harness import telemetry
from tileseer.devices.harness.visible import VARIABLES, Gpu
from tileseer.settings.benchmark import BenchmarkSettings
from tileseer.settings.compile import CkSettings, CompileSettings, CutlassSettings
from tileseer.settings.config import Config

API = Path(__file__).parents[2] / "config/ck_api.yaml"


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine with nothing on it."""
    for variable in ("PATH", "ROCM_PATH", "CUDA_HOME", "CUDA_PATH", "CUTLASS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in VARIABLES["hip"]:
        monkeypatch.delenv(variable, raising=False)
    # Installs lie outside of what the environment names.
    monkeypatch.setattr(compiler, "NVCC", replace(compiler.NVCC, places=list))


def found(config: Config) -> dict[str, doctor.Finding]:
    return {finding.subject: finding for finding in doctor.findings(config, API)}


def test_a_missing_compiler_is_needed_only_where_the_configuration_compiles():
    assert found(Config())["HIP compiler"].status == "missing"
    finding = found(Config(compile=CompileSettings(toolchain="hipcc")))["HIP compiler"]
    assert finding.status == "needed"
    assert "make toolchain" in finding.fix


def test_each_maker_has_its_own_compiler_and_headers():
    rows = found(Config(compile=CompileSettings(toolchain="nvcc"), cutlass=CutlassSettings(root="/nowhere")))
    assert rows["HIP compiler"].status == "missing"
    for subject in ("CUDA compiler", "CUTLASS headers"):
        assert rows[subject].status == "needed"
        assert "make cuda-toolchain" in rows[subject].fix
    assert found(Config())["CUDA compiler"].status == "missing"


def test_a_tree_is_found_with_its_level(tmp_path):
    header = tmp_path / "ck/include/ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("struct FixedGemmParams;")
    findings = found(Config(ck=CkSettings(root=str(tmp_path / "ck"))))
    assert findings["Composable Kernel tree"].found == str(tmp_path / "ck")
    assert findings["CK API level"].found == "2025.11"


HIP = Config(arch="gfx950", compile=CompileSettings(toolchain="hipcc"), benchmark=BenchmarkSettings(device="hip"))


def test_gpus_of_another_arch_are_needed_and_told_with_the_fix(monkeypatch):
    monkeypatch.setattr(doctor, "amd_gpus", lambda: [Gpu(0, "GPU-1", "gfx942", "0000:c1:00.0")])
    monkeypatch.setattr(telemetry, "amd_gpus", doctor.amd_gpus)
    monkeypatch.setattr(doctor, "KFD", API)
    rows = found(HIP)
    assert (rows["AMD GPU"].status, rows["AMD GPU"].found) == ("ok", "gfx942 at 0000:c1:00.0")
    assert rows["visible GPUs"].status == "needed" and "--config arch=gfx942" in rows["visible GPUs"].fix
    assert found(HIP.model_copy(update={"arch": "gfx942"}))["visible GPUs"].found == "1 for gfx942"
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    hidden = found(HIP)["visible GPUs"]
    assert hidden.status == "needed" and "HIP_VISIBLE_DEVICES='3'" in hidden.found and hidden.fix.startswith("unset it")
    assert found(Config())["visible GPUs"].status == "ok"


def test_rocm_is_found_with_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert "make toolchain" in found(Config())["ROCm"].fix
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info/version").write_text("6.4.1-83\n")
    assert found(Config())["ROCm"].found == f"6.4.1-83 in {tmp_path}"


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("programs", "status", "told"),
    [
        ({}, None, ""),
        ({"sbatch": ""}, None, ""),
        ({"sbatch": "", "sinfo": "echo gpu*; echo cpu"}, "ok", "this cluster keeps no accounts"),
        ({"sbatch": "", "sinfo": "echo gpu*", "sacctmgr": "exit 1"}, "ok", "this cluster keeps no accounts"),
        ({"sbatch": "", "sinfo": "echo gpu*", "sacctmgr": ""}, "missing", "slurm_account=NAME"),
        ({"sbatch": "", "sinfo": "echo gpu*", "sacctmgr": "echo lab; echo lab"}, "ok", "lab"),
    ],
    ids=str,
)
def test_slurm_has_a_line_for_the_cluster_and_one_for_the_account(tmp_path, programs, status, told):
    for name, text in programs.items():
        program(tmp_path, name, text)
    rows = found(Config())
    if status is None:
        assert rows["SLURM"].status == "missing" and rows["SLURM"].fix and "SLURM account" not in rows
        return
    assert rows["SLURM"].found.startswith("partitions gpu*")
    account = rows["SLURM account"]
    assert account.status == status and told in account.found + account.fix


def test_every_line_that_is_not_ok_has_a_fix():
    for config in (Config(), HIP):
        assert all(finding.fix for finding in doctor.findings(config, API) if finding.status != "ok")


def test_the_report_is_one_file_without_private_data(tmp_path, monkeypatch, capsys):
    home = tmp_path / "home/alice"
    (home / "study/logs/gfx950").mkdir(parents=True)
    monkeypatch.chdir(home / "study")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    monkeypatch.setattr("socket.gethostname", lambda: "login7")
    monkeypatch.setattr("socket.getfqdn", lambda: "login7.site.example")
    Path("config.yaml").write_text(f"cache: {{folder: {home}/cache}}\nbenchmark: {{device: hip}}\n")
    lines = [f"line {number}" for number in range(100)]
    lines += [f"{home}/study/x.so: alice@site.example on login7: GPU-1a2b3c4d5e6f7788 is lost", "malice stays"]
    Path("logs/gfx950/driver.log").write_text("\n".join(lines))
    assert main(["doctor", "--configfile", "config.yaml", "--report", "report.json"]) == 1
    assert "read it before you send it" in capsys.readouterr().out
    text = Path("report.json").read_text()
    assert not re.search(r"(?<!m)alice|login7|site\.example|1a2b3c4d", text) and str(tmp_path) not in text
    told = json.loads(text)
    assert told["settings"]["benchmark"] == {"device": "hip"}
    assert (
        told["logs"]["logs/gfx950/driver.log"][-1] == "malice stays"
        and len(told["logs"]["logs/gfx950/driver.log"]) == 40
    )
    assert {row["subject"] for row in told["findings"]} >= {"AMD GPU", "ROCm", "SLURM"}


def test_the_exit_status_says_whether_something_needed_is_missing(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text("compile: {toolchain: none}\n")
    assert main(["doctor", "--configfile", str(config)]) == 0
    config.write_text("compile: {toolchain: hipcc}\n")
    capsys.readouterr()
    assert main(["doctor", "--configfile", str(config), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["findings"]
    assert {"subject": "HIP compiler", "status": "needed"}.items() <= rows[
        [r["subject"] for r in rows].index("HIP compiler")
    ].items()
