"""``tileseer doctor`` on machines that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tileseer.build import compiler
from tileseer.cli import doctor
from tileseer.cli.main import main
from tileseer.facts.benchmark import BenchmarkSettings
from tileseer.facts.compile import CkSettings, CompileSettings, CutlassSettings
from tileseer.facts.config import Config
from tileseer.measure.harness import telemetry
from tileseer.measure.harness.telemetry import VARIABLES, Board

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


def check(config: Config) -> dict[str, doctor.Finding]:
    return {finding.subject: finding for finding in doctor.find_all(config, API)}


def test_a_missing_compiler_is_needed_only_where_the_configuration_compiles():
    assert check(Config())["HIP compiler"].status == "missing"
    finding = check(Config(compile=CompileSettings(toolchain="hipcc")))["HIP compiler"]
    assert finding.status == "needed"
    assert "make toolchain" in finding.fix


def test_each_maker_has_its_own_compiler_and_headers():
    rows = check(Config(compile=CompileSettings(toolchain="nvcc"), cutlass=CutlassSettings(root="/nowhere")))
    assert rows["HIP compiler"].status == "missing"
    for subject in ("CUDA compiler", "CUTLASS headers"):
        assert rows[subject].status == "needed"
        assert "make cuda-toolchain" in rows[subject].fix
    assert check(Config())["CUDA compiler"].status == "missing"


def test_a_tree_is_found_with_its_level(tmp_path):
    header = tmp_path / "ck/include/ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("struct FixedGemmParams;")
    findings = check(Config(ck=CkSettings(root=str(tmp_path / "ck"))))
    assert findings["Composable Kernel tree"].result == str(tmp_path / "ck")
    assert findings["CK API level"].result == "2025.11"


HIP = Config(arch="gfx950", compile=CompileSettings(toolchain="hipcc"), benchmark=BenchmarkSettings(device="hip"))


def test_gpus_of_another_arch_are_needed_and_told_with_the_fix(monkeypatch):
    monkeypatch.setattr(doctor, "amd_boards", lambda smi=None: [Board("GPU-1", "0000:c1:00.0", "gfx942")])
    monkeypatch.setattr(telemetry, "amd_boards", doctor.amd_boards)
    monkeypatch.setattr(doctor, "KFD", API)
    rows = check(HIP)
    assert (rows["AMD GPU"].status, rows["AMD GPU"].result) == ("ok", "gfx942 at 0000:c1:00.0")
    assert rows["visible GPUs"].status == "needed" and "--config arch=gfx942" in rows["visible GPUs"].fix
    assert check(HIP.model_copy(update={"arch": "gfx942"}))["visible GPUs"].result == "1 for gfx942"
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    hidden = check(HIP)["visible GPUs"]
    assert (
        hidden.status == "needed" and "HIP_VISIBLE_DEVICES='3'" in hidden.result and hidden.fix.startswith("unset it")
    )
    assert check(Config())["visible GPUs"].status == "ok"


def test_rocm_is_found_with_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert "make toolchain" in check(Config())["ROCm"].fix
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info/version").write_text("6.4.1-83\n")
    assert check(Config())["ROCm"].result == f"6.4.1-83 in {tmp_path}"


def test_every_line_that_is_not_ok_has_a_fix():
    for config in (Config(), HIP):
        assert all(finding.fix for finding in doctor.find_all(config, API) if finding.status != "ok")


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


def test_folders_that_cannot_be_written_are_needed(tmp_path, capsys):
    (tmp_path / "file").touch()
    config = tmp_path / "config.yaml"
    # Nobody, root included, makes a folder in these.
    for folder in ("/proc/nope", tmp_path / "file/nope"):
        config.write_text(f"cache: {{folder: {folder}}}\nlock: {{folder: {folder}}}\n")
        assert main(["doctor", "--configfile", str(config), "--json"]) == 1
        rows = {row["subject"]: row for row in json.loads(capsys.readouterr().out)["findings"]}
        for subject, setting in (("cache", "cache.folder"), ("GPU lock", "lock.folder")):
            assert rows[subject]["status"] == "needed" and f"{folder} cannot be written" in rows[subject]["result"]
            assert f"set {setting}" in rows[subject]["fix"]
