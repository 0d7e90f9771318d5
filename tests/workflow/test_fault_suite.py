"""The short form of the fault suite; `make faults` is the long one."""

import subprocess
import sys

from small_workflow import ROOT, environment


def test_no_fault_loses_anything():
    few = {
        "stage-kills": 8, "damages": 16, "compiler-faults": 4, "compiler-kills": 1, "worker-kills": 1,
        "publish-kills": 1, "reads": 20, "entries": 12, "recordings": 6, "no-flock": 1, "edits": 1,
    }  # fmt: skip
    words = [word for name, number in few.items() for word in (f"--{name}", str(number))]
    run = subprocess.run(
        [sys.executable, "tests/workflow/fault_suite.py", "--users", *words],
        cwd=ROOT, env=environment() | {"PYTHONPATH": "src:tests/builders"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| **all** |" in run.stdout
