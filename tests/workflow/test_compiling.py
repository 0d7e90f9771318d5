"""The workflow with the compiling toolchain: a compiler that writes small code objects stands for hipcc."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import yaml
from journals import journal_rows
from small_workflow import with_fake_compiler

from tileseer.data.dataset import Dataset
from tileseer.problems.problem import Problem
from tileseer.serve.selector import Selector

MODEL, DATASET = "results/models/gfx950", "results/datasets/gfx950/forward_bf16/pairs.parquet"


def table(workflow, pattern: str):
    rows = []
    for path in sorted(workflow.folder.glob(pattern)):
        rows += pq.read_table(path).to_pylist()
    return rows


def test_a_model_from_compiled_kernels_of_which_only_new_code_is_measured(fresh, tmp_path):
    folder = with_fake_compiler(fresh, tmp_path / "machine")
    rules = fresh.folder / "config/rule_sets/small.yaml"
    small = yaml.safe_load(rules.read_text())
    small["variants"]["forward"]["options"] += [{"pipeline": "basic_v1", "schedulers": ["intrawave", "interwave"]}]
    rules.write_text(yaml.safe_dump(small))
    (folder / "codes").write_text("M_Tile = 16; 3000\n")
    first = fresh.make(MODEL)
    built = table(fresh, "results/build/gfx950/forward_bf16/[0-9].parquet")
    failed = {row["kernel"] for row in built if "_compv4_" in row["kernel"]}
    assert failed == {row["kernel"] for row in built if row["build_status"] == "compile_error"} != set()
    assert {row["resources_from"] for row in built if row["build_status"] == "ok"} == {"code_object"}
    kernels = table(fresh, "results/datasets/gfx950/forward_bf16/kernels.parquet")
    assert {row["kernel"] for row in kernels if row["build_status"] == "compile_error"} == failed
    folder_of = fresh.folder / MODEL / "grouped_conv_forward_bf16_gfx950"
    spec = json.loads((folder_of / "feature_spec.json").read_text())
    assert spec["feature_set"] == "compiled"
    assert {"n_mfma", "vgpr_spills", "code_bytes"} <= set(spec["feature_names"])
    selector = Selector.read(fresh.folder / MODEL, "forward_bf16")
    problem = Problem.from_dims("forward", "bf16", N=4, C=64, K=64, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1)
    assert len(selector.rank(problem)) > 0

    # Of the kernels with the same code one is measured.
    names = {row["kernel"] for row in table(fresh, "results/aliases/gfx950/forward_bf16.parquet")}
    measured = "".join(journal_rows(fresh.folder / "results/journals"))
    assert names and measured and not [name for name in names if f"'{name}'" in measured]
    data = Dataset.read((fresh.folder / DATASET).parent)
    assert data.ok.any() and not names & set(data.candidates["kernel"])
    assert {name for text in data.candidates["aliases"] for name in text.split()} == names
    assert first.measured == len(data.problem)

    # Another compiler that makes the same code: compiled again, measured not.
    runs = (folder / "runs").read_text()
    (folder / "version").write_text("fake hipcc version 2")
    again = fresh.make(DATASET)
    assert again.jobs["compile"] > 0 and again.measured == 0
    assert len((folder / "runs").read_text()) > len(runs)

    # Another one that makes other code of one tile: its kernels are measured again, and no others.
    (folder / "codes").write_text("M_Tile = 16; 5000\n")
    (folder / "version").write_text("fake hipcc version 3")
    again = fresh.make(DATASET)
    after = Dataset.read((fresh.folder / DATASET).parent)
    changed = ~after.candidates["kernel_id"].isin(data.candidates["kernel_id"]).to_numpy()
    assert 0 < again.measured == changed[after.candidate].sum() < first.measured

    # The same compiler and an empty results folder: everything comes from the cache.
    runs = (folder / "runs").read_text()
    shutil.rmtree(fresh.folder / "results/build")
    assert fresh.make("results/build/gfx950/forward_bf16/0.parquet").jobs == {"compile": 1}
    assert (folder / "runs").read_text() == runs
