"""``tileseer doctor`` on machines that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tileseer.cli.main import main
from tileseer.client import doctor
from tileseer.compile import compiler
from tileseer.settings.compile import CkSettings, CompileSettings, CutlassSettings
from tileseer.settings.config import Config

API = Path(__file__).parents[2] / "config/ck_api.yaml"


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine with nothing on it."""
    for variable in ("PATH", "ROCM_PATH", "CUDA_HOME", "CUDA_PATH", "CUTLASS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
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


def test_gpu_targets_are_read_from_the_driver(tmp_path):
    for node, version in enumerate((0, 90402, 90500, 90010, 110000)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\n")
    assert doctor._kfd_targets(tmp_path) == ["gfx942", "gfx950", "gfx90a", "gfx1100"]


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
