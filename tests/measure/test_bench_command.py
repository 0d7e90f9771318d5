"""``tileseer bench`` and the noise study, without a GPU."""

from __future__ import annotations

from pathlib import Path

from tileseer.cli.main import main

ROOT = Path(__file__).parents[2]


def test_quick_on_the_simulated_device_says_that_it_is_simulated(capsys):
    assert main(["bench", "--quick", "--kernels", "4", "--config", str(ROOT / "config")]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert "SIMULATED" in head and len(rows) == 4
    times = [float(row.split()[0]) for row in rows if " ok " in row]
    assert times == sorted(times) and times


def test_quick_through_the_driver_measures_and_names_faults(libraries, capsys):
    driver, module = libraries
    call = ["bench", "--driver", driver, "--module", module, "--dtype", "fp32", "--kernels", "9"]
    assert main([*call, "--problem", "N=1,C=8,K=8,Hi=5,Wi=5,Y=3,X=3"]) == 0
    out = capsys.readouterr().out
    assert "host memory (host, operands cold)" in out
    assert "0.0100" in out and "crash" in out and "SIGSEGV in phase verify" in out
    assert main([*call, "--problem", "N=1,C=128,K=8,Hi=5,Wi=5"]) == 1
    assert "no kernel supports the problem" in capsys.readouterr().out


def test_mistakes_are_one_line(libraries, tmp_path, capsys):
    assert main(["bench"]) == 2
    assert main(["bench", "--quick", "--driver", str(tmp_path / "absent.so")]) == 2
    assert main(["bench", "--quick", "--module", str(tmp_path / "absent.so")]) == 2
    assert [line[:6] for line in capsys.readouterr().err.splitlines()] == ["error:"] * 3
