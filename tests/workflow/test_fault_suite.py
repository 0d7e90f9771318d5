"""The short form of the fault suite; `make faults` is the long one."""

import subprocess
import sys

from small_workflow import ROOT, environment


def test_no_fault_loses_anything():
    run = subprocess.run(
        [sys.executable, "tests/workflow/fault_suite.py"],
        cwd=ROOT, env=environment() | {"PYTHONPATH": "src:tests/builders"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| **all** |" in run.stdout
