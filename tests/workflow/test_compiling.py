"""The workflow with the compiling toolchain: a compiler that writes small code objects stands for hipcc."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from small_workflow import ROOT

MODEL = "results/models/gfx950"


def with_fake_compiler(workflow, folder: Path) -> Path:
    """Configure the workflow to compile with fake_hipcc.py; kernels of pipeline compv4 fail."""
    folder.mkdir()
    compiler = folder / "hipcc"
    text = (ROOT / "tests/unit/fake_hipcc.py").read_text()
    compiler.write_text(f"#!{sys.executable}\n{text}")
    compiler.chmod(0o755)
    (folder / "version").write_text("fake hipcc version 1")
    (folder / "fail").write_text("COMPUTE_V4")
    tree = folder / "ck/include/ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"
    tree.parent.mkdir(parents=True)
    tree.write_text("struct FixedGemmParams;")
    workflow.configure(
        compile={"toolchain": "hipcc", "compiler": str(compiler)},
        ck={"root": str(folder / "ck")},
        cache={"folder": str(folder / "cache")},
    )
    return folder


def table(workflow, pattern: str):
    rows = []
    for path in sorted(workflow.folder.glob(pattern)):
        rows += pq.read_table(path).to_pylist()
    return rows


def test_a_model_from_compiled_kernels(fresh, tmp_path):
    folder = with_fake_compiler(fresh, tmp_path / "machine")
    fresh.make(MODEL)
    built = table(fresh, "results/build/gfx950/forward_bf16/[0-9].parquet")
    failed = [row for row in built if "_compv4_" in row["kernel"]]
    assert failed
    assert {row["build_status"] for row in failed} == {"compile_error"}
    assert {row["resources_from"] for row in built if row["build_status"] == "ok"} == {"code_object"}
    statuses = Counter(row["status"] for row in table(fresh, "results/datasets/gfx950/forward_bf16.parquet"))
    assert statuses["ok"] > 0
    assert statuses["compile_error"] > 0

    # Another compiler that makes the same code: compiled again, measured not, learnt not.
    runs = (folder / "runs").read_text()
    (folder / "version").write_text("fake hipcc version 2")
    again = fresh.make(MODEL)
    assert again.jobs["compile"] > 0
    assert again.measured == 0
    assert again.jobs["model"] == 0
    assert len((folder / "runs").read_text()) > len(runs)

    # The same compiler and an empty results folder: everything comes from the cache.
    runs = (folder / "runs").read_text()
    shutil.rmtree(fresh.folder / "results/build")
    fresh.make(MODEL)
    assert (folder / "runs").read_text() == runs


def test_no_compiler_stops_before_the_first_job(fresh, tmp_path):
    (with_fake_compiler(fresh, tmp_path / "machine") / "hipcc").unlink()
    run = fresh.run(MODEL)
    assert run.status != 0
    assert "--version does not answer" in run.output
    assert not run.jobs
