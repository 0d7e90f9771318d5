"""``tileseer verify --emulate``: which kernels it executes, and what it refuses."""

from __future__ import annotations

import kernel_samples
import pytest

from tileseer.cli import main
from tileseer_emulated.kernels import KernelVerdict

MISTAKES = {
    "\n": "the list is empty; write one kernel name a line",
    "grouped_conv_forward\n": "grouped_conv_forward",
    "\xff": "line 1 is not UTF-8; save the file as UTF-8",
    kernel_samples.a_kernel(ndim=1).name: "no problem has one dimension",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_list_is_one_message(text, tmp_path, capsys):
    path = tmp_path / "kernels.txt"
    path.write_text(text, encoding="latin-1")
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert MISTAKES[text] in capsys.readouterr().err


def test_the_missing_package_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main.main(["verify", str(tmp_path), "--emulate"]) == 2
    assert (
        "pip install -e packages/amdgpu_emulator -e packages/tileseer_emulated in a checkout" in capsys.readouterr().err
    )


def test_a_larger_sample_has_the_smaller_one(tmp_path, monkeypatch, capsys):
    executed = []

    def verdicts(workshop, kernels, jobs):
        executed.append((workshop.arch, workshop.few, {kernel.name for kernel in kernels}))
        return [KernelVerdict(kernel.name, "ok") for kernel in kernels]

    monkeypatch.setattr("tileseer_emulated.command.verdicts", verdicts)
    path = tmp_path / "kernels.txt"
    path.write_text("\n".join(kernel_samples.a_kernel(num_groups_to_merge=merged).name for merged in range(1, 13)))
    for sample in ("5", "8"):
        assert main.main(["verify", str(path), "--emulate", "--arch", "gfx942", "--sample", sample, "--quick"]) == 0
    assert "8 kernels executed on an emulated gfx942, 0 failed" in capsys.readouterr().out
    (few, many) = (names for _, _, names in executed)
    assert [(arch, is_quick) for arch, is_quick, _ in executed] == [("gfx942", True)] * 2
    assert len(few) == 5 and len(many) == 8 and few < many


@pytest.mark.parametrize(("arch", "what"), [("gfx1100", "CDNA GPUs with waves of 64 lanes"), ("sm_90", "AMD GPUs")])
def test_an_arch_that_is_not_emulated_is_refused_before_anything_is_read(tmp_path, capsys, arch, what):
    assert main.main(["verify", str(tmp_path / "absent.txt"), "--emulate", "--arch", arch]) == 2
    assert f"{arch} is not emulated, only {what}; choose gfx90a, gfx942, gfx950" in capsys.readouterr().err
