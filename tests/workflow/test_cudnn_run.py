"""config/cudnn.yaml from nothing to models, with stand-ins for cuDNN's frontend and for nvcc."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest
import yaml
from small_workflow import ROOT, with_few_problems, write_program

from tileseer.measure.journal import read_journal

MODEL, OPERATION = "results/models/sm_90_cudnn", "sm_90_cudnn/forward_bf16"
NVCC = """
import subprocess, sys

if sys.argv[1:] == ["--version"]:
    print("Cuda compilation tools, release 99.1, V99.1.2")
    raise SystemExit
left_out = ("-x", "cu", "-cudart", "shared", "-Xcompiler", "-DTILESEER_CUDA")
words = [word for word in sys.argv[1:] if word not in left_out and not word.startswith("-arch=")]
raise SystemExit(subprocess.run(["c++", "-DTILESEER_HOST", *words], check=False).returncode)
"""


@pytest.fixture
def machine(fresh, tmp_path, monkeypatch):
    """A workflow with config/cudnn.yaml and a few problems, whose compiler builds the driver of the host."""
    if not shutil.which("c++"):
        pytest.skip("no host C++ compiler")
    compiler = write_program(tmp_path / "nvcc", NVCC)
    train = [(8, 8, 4, 1), (8, 16, 5, 3), (16, 8, 4, 3), (16, 32, 3, 1), (24, 8, 5, 1), (8, 12, 4, 3), (8, 10, 4, 3)]
    judge = [(8, 24, 4, 3), (16, 16, 5, 1), (32, 8, 3, 3), (24, 40, 4, 1)]
    problems = with_few_problems(fresh, train=train, judge=judge)
    cudnn = yaml.safe_load((ROOT / "config/cudnn.yaml").read_text())
    fresh.configure(
        **cudnn | {"operations": ["forward_bf16"], "problems": problems},
        compile={"compiler": str(compiler)}, cache={"folder": str(tmp_path / "cache")},
    )  # fmt: skip
    return fresh


def test_plans_are_asked_for_measured_and_learnt_from(machine, monkeypatch):
    stand_in = {"PYTHONPATH": f"{machine.folder / 'src'}:{ROOT / 'tests/builders/stand_in_cudnn'}"}
    environment = machine.environment() | stand_in
    monkeypatch.setattr(type(machine), "environment", lambda self: environment)
    jobs = machine.make(MODEL).jobs
    made = {"problems", "driver", "plans", "benchmark", "dataset", "model", "serving", "evaluation", "publish"}
    assert set(jobs) == made
    index = json.loads(machine.read(f"{MODEL}/index.json"))
    assert index["device_kind"] == "measured"
    rows = pq.read_table(machine.folder / f"results/datasets/{OPERATION}/pairs.parquet").to_pandas()
    assert set(rows["status"]) == {"ok", "unsupported", "wrong_result", "crash"} and (rows["rank"] >= 0).all()
    measured, _ = read_journal(machine.folder / f"results/journals/{OPERATION}/0.csv")
    assert measured["device_kind"].to_pylist() == ["measured"] * len(rows)
    spec = json.loads(machine.read(f"results/training/{OPERATION}/feature_spec.json"))
    assert spec["library"] == "cudnn 91900"
    assert not machine.make(MODEL).jobs
