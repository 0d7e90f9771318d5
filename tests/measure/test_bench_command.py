"""``tileseer bench`` and the noise study, without a GPU."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tileseer.cli.main import main
from tileseer.measure.harness.details import Details

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
    assert [line[:6] for line in capsys.readouterr().err.splitlines()] == ["error:"] * 2


def pair(key, milliseconds, status="ok"):
    result = {"samples": 5, "median_ms": milliseconds, "noise": 0.01} if status == "ok" else None
    return {"kernel": "k", "split_k": 1, "problem_key": key, "status": status, "result": result}


def test_the_noise_study_compares_the_pairs_of_two_runs(tmp_path, capsys, monkeypatch):
    for name, times in (("a", (1.0, 2.0, 4.0)), ("b", (1.01, 2.02, 4.04))):
        log = Details(tmp_path / name)
        for key, milliseconds in enumerate(times):
            log.write("pair", pair(str(key), milliseconds))
        log.write("pair", pair("x" + name, 1.0))
        log.write("pair", pair("y", 0.0, "crash"))
    monkeypatch.setattr(sys, "argv", ["noise.py", str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "benchmarks/gpu/noise.py"), run_name="__main__")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "3 pairs in both runs; 1 and 1 in one only" in out
    assert "mean signed difference: +0.995%" in out
