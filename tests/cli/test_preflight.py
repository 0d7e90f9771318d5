"""What a configuration names is checked before the first job, and all faults are one list."""

import json
import shutil
from pathlib import Path

import pytest

from tileseer.cli import preflight
from tileseer.core.errors import UserError
from tileseer.facts.config import check

ROOT = Path(__file__).parents[2]
TABLES = [Path("config", name) for name in ("rule_sets", "simulated_device.yaml", "ck_api.yaml")]
PROBLEMS = {"networks": "config/problems/smoke.csv", "validation": "config/problems/smoke.csv"}
"""A small table: each test reads it."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faults(**sections):
    """The lines that a configuration with these sections leads to."""
    settings = check(sections | {"problems": PROBLEMS | sections.get("problems", {})})
    try:
        preflight.refuse_faults(settings, *TABLES)
    except UserError as error:
        return str(error).splitlines()
    return []


def test_the_shipped_configurations_have_no_fault():
    assert faults() == []
    for arch in ("gfx950_mi355x", "sm_90", "sm_90_cudnn", "gfx942_miopen", "gfx90a_miopen"):
        assert faults(arch=arch) == [], arch


WRONG = {
    "rule set": (
        {"configs": {"rule_set": "config/rule_sets/sweeep.yaml"}},
        "configs.rule_set: config/rule_sets/sweeep.yaml: there is no such file; is it config/rule_sets/sweep.yaml?",
    ),
    "rule set of other kernels": (
        {"configs": {"rule_set": "config/rule_sets/cutlass.yaml"}},
        "configs.rule_set: config/rule_sets/cutlass.yaml is a set of cutlass kernels, which gfx950 does not run",
    ),
    "rule set of a checkout": ({"configs": {"rule_set": "profiler"}}, "configs.rule_set: the rule set profiler is"),
    "checkout without it": (
        {"configs": {"rule_set": "profiler"}, "ck": {"root": "/nowhere", "api": "2026.06"}},
        "there is no folder /nowhere/experimental",
    ),
    "file of another folder": (
        {"configs": {"rule_set": "sweep.yaml"}},
        "configs.rule_set: sweep.yaml: there is no such file; is it config/rule_sets/sweep.yaml?; sets with a name",
    ),
    "lost file": ({"problems": {"networks": "config/problems/x.csv"}}, ", or bring it back: git checkout -- config/"),
    "flag": ({"configs": {"include_flagged": ["half"]}}, "configs.include_flagged: unknown flag 'half'"),
    "features": ({"model": {"features": "half"}}, "model.features: feature set 'half' is unknown; use one of"),
    "prior": ({"model": {"prior": "config"}}, "there is no such file; name the folder of an operation of models"),
    "problems.validation": (
        {"problems": {"validation": "config/problems/smok.csv"}},
        "problems.validation: config/problems/smok.csv: there is no such file; is it config/problems/smoke.csv?",
    ),
    "problems.training": (
        {"problems": {"training": ["config/problems/networks.md"]}}, "problems.training: config/problems/networks.md is"
    ),
    "table": ({"problems": {"networks": "broken.csv"}}, "broken.csv, line 1: 'N' is missing"),
    "generator": ({"problems": {"training": ["broken.yaml"]}}, "broken.yaml: section 'a': unknown dimension 'Q'"),
    "hardware": ({"hardware": "config/hardwre.yaml"}, "hardware: config/hardwre.yaml: there is no such file; is it"),
    "arch_specs": ({"arch_specs": "broken.csv"}, "broken.csv: is not JSON"),
    "no product": ({"benchmark": {"products": {}}}, "benchmark.products: there is no entry for gfx950; write gfx950:"),
    "product of another arch": (
        {"benchmark": {"products": {"gfx950": "gfx942_mi300x"}}},
        "benchmark.products.gfx950: gfx942_mi300x is a gfx942 in config/hardware.yaml; write one of gfx950_mi355x",
    ),
    "arch": ({"arch": "gfx95"}, "arch: 'gfx95' is neither in config/arch_specs.json nor under replays; is it gfx950?"),
    "device": ({"benchmark": {"device": "cuda"}}, "for CK Tile's kernels; take --configfile config/hip.yaml, which"),
    "compiler": (
        {"compile": {"toolchain": "hipcc", "compiler": "/nowhere/hipcc"}, "ck": {"root": "/nowhere"}},
        "ck.root: no Composable Kernel tree in /nowhere",
    ),
    "recording": (
        {"arch": "gfx950_a", "replays": {"gfx950_a": "own"}, "benchmark": {"products": {"gfx950_a": "gfx950_mi355x"}}},
        "replays.gfx950_a: own/recording.json: there is no such file; give the folder of a recording",
    ),
    "recording of another device": (
        {"arch": "sm_90", "benchmark": {"products": {"sm_90": "sm_90_b"}}}, "benchmark.products.sm_90: sm_90_b is"
    ),
    "recording, and a GPU to measure": (
        {"arch": "gfx950_mi355x", "benchmark": {"device": "hip"}},
        "leave out the configuration that sets benchmark, or to measure them write replays: {} into it",
    ),
    "operation that was not recorded": (
        {"arch": "gfx950_mi355x", "operations": ["bwd_data_fp32"]}, "bwd_data_fp32 was not recorded; it has"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_one_line_with_file_field_value_and_fix(name, folder):
    sections, expected = WRONG[name]
    (folder / "broken.csv").write_text("network,layer\n1,2\n")
    (folder / "broken.yaml").write_text("sections: [{name: a, choices: {Q: [1]}}]")
    lines = [line for line in faults(**sections) if expected in line]
    assert len(lines) == 1, faults(**sections)


def test_a_tile_of_a_rule_set_is_written_once(folder):
    text = (ROOT / "config/rule_sets/sweep.yaml").read_text()
    tile = next(line for line in text.splitlines(keepends=True) if line.startswith("  - {tile"))
    (folder / "own.yaml").write_text(text.replace(tile, tile * 2))
    (line,) = faults(configs={"rule_set": "own.yaml"})
    assert line.startswith(
        "configs.rule_set: own.yaml: tiles.1: should be no repetition of an earlier element, number 0: remove"
    )


def test_a_prior_that_runs_make_anew_is_copied_first(folder):
    path = Path("results/training/gfx942/forward_bf16")
    path.mkdir(parents=True)
    for file in check({"model": {"prior": str(path)}}).model.prior_files:
        Path(file).touch()
    (line,) = faults(model={"prior": str(path)})
    assert line.startswith(f"model.prior: {path}: runs make this folder anew; copy it: mkdir -p priors && cp -r {path}")


def test_all_faults_are_one_list():
    lines = faults(
        arch_specs="nowhere.json",
        benchmark={"products": {"gfx950_mi355x": "gfx950_mi355x"}},
        problems={"validation": "nowhere.csv"},
        configs={"include_flagged": ["slow"], "rule_set": "no.yaml"},
    )  # fmt: skip
    expected = {
        "arch_specs: nowhere.json:", "benchmark.products: there is no entry",
        "problems.validation: nowhere.csv:", "configs.include_flagged: unknown flag 'slow'",
        "configs.rule_set: no.yaml:",
    }  # fmt: skip
    assert {start for start in expected for line in lines if line.startswith(start)} == expected
    assert len(lines) == len(expected)


def test_a_table_of_another_kind_does_not_fill_the_screen(folder):
    fields = {f"field{number}": 1 for number in range(50)}
    (folder / "own.yaml").write_text(json.dumps(fields))
    (line,) = faults(configs={"rule_set": "own.yaml"})
    assert line.startswith("configs.rule_set: own.yaml: is a file of another kind; name one with the fields ")
    (folder / "own.yaml").write_text(json.dumps({"tiles": [{name: 1} for name in fields]}))
    lines = faults(configs={"rule_set": "own.yaml"})
    assert len(lines) == preflight.MOST_LINES + 1 and lines[-1].startswith("configs.rule_set: and ")


def test_a_recording_has_the_tables_of_its_operations(folder):
    shutil.copytree(ROOT / "config/recorded/gfx950_mi355x", folder / "own")
    operation = json.loads((folder / "own/recording.json").read_text())["operations"][0]
    (folder / "own" / operation / "pairs.parquet").unlink()
    sections = {"arch": "gfx950_mi355x", "replays": {"gfx950_mi355x": "own"}}
    (line,) = faults(**sections)
    assert line.startswith(f"own/{operation}/pairs.parquet: there is no such file")
    (line,) = faults(**sections | {"benchmark": {"products": {"gfx950_mi355x": "gfx950_mi350x"}}})
    assert "the device is gfx950_mi355x, but the models are of gfx950_mi350x" in line


def test_the_time_of_measuring_or_a_missing_gpu_is_told_before_it_starts(monkeypatch):
    cuda, operations = {"device": "cuda"}, ["forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"]
    monkeypatch.setattr(preflight, "missing_driver", lambda device: "there is no /dev/kfd")
    assert "this machine shows none: there is no /dev/kfd" in preflight.measuring_time(
        check({"benchmark": cuda}), operations
    )
    monkeypatch.setattr(preflight, "missing_driver", lambda device: "")
    hour = preflight.measuring_time(check({"benchmark": cuda | {"budget": "18m"}}), operations)
    assert "at most 0:54:00" in hour and "0:18:00 for each of 3 operations" in hour
    assert "without a limit" in preflight.measuring_time(check({"benchmark": cuda}), operations)
