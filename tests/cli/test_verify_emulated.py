"""``tileseer verify --emulate``: which kernels it executes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

from tileseer.cli import main
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.rule_sets import read_sweep
from tileseer.measure.emulated_kernels import KernelVerdict
from tileseer.problems.operation import Operation

ROOT = Path(__file__).parents[2]


def test_mistakes_in_a_list_are_told(tmp_path, capsys, monkeypatch):
    assert main.main(["verify", "--emulate"]) == 2
    assert "give a list of names, or --sample N for N of the default pool" in capsys.readouterr().err
    assert main.main(["verify"]) == 2
    assert "which file or folder?" in capsys.readouterr().err
    path = tmp_path / "kernels.txt"
    path.write_text("\n")
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert "the list is empty; write one kernel name a line" in capsys.readouterr().err
    path.write_text("grouped_conv_forward\n")
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert "grouped_conv_forward" in capsys.readouterr().err
    assert main.main(["verify", str(tmp_path / "none.txt"), "--emulate"]) == 2
    assert "no list of kernel names" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert "pip install 'tileseer[emulate]'" in capsys.readouterr().err


def test_a_sample_without_a_list_is_of_the_default_pool(monkeypatch, capsys):
    asked = []

    def verdicts(workshop, kernels, jobs):
        asked.append((workshop.arch, workshop.most, [kernel.name for kernel in kernels]))
        return [KernelVerdict(kernel.name, "ok") for kernel in kernels]

    monkeypatch.setattr("tileseer.serve.emulation.verdicts", verdicts)
    for sample in ("5", "8"):
        assert main.main(["verify", "--emulate", "--arch", "gfx942", "--sample", sample, "--quick"]) == 0
    assert "8 kernels executed on an emulated gfx942, 0 failed" in capsys.readouterr().out
    (few, many) = (set(names) for _, _, names in asked)
    assert [(arch, most) for arch, most, _ in asked] == [("gfx942", 1)] * 2
    assert len(few) == 5 and len(many) == 8 and few < many
    assert main.main(["verify", "--emulate", "--sample", "9999"]) == 0
    sweep, specs = (
        read_sweep(ROOT / "config/rule_sets/sweep.yaml", "gfx950"),
        ArchSpecs.load(ROOT / "config/arch_specs.json"),
    )
    pool = sweep.enumerate(specs, "gfx950", Operation("bwd_data", "bf16"), [2, 3], []).kernels
    assert {kernel.name for kernel in pool} < set(asked[-1][2])
