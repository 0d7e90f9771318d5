"""An arch that a real GPU measured once is replayed, trained on and published with its label."""

from __future__ import annotations

import hashlib
import json
import re

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from help_examples import words
from small_workflow import tileseer

from tileseer.libraries.miopen.find_db import Key
from tileseer.libraries.miopen.solvers import SOLVERS
from tileseer.problems.problem import DIMS, Problem

OPERATION = "forward_bf16"


def answer(workflow, *words):
    """What a command prints in a workflow's folder; it must succeed."""
    run = tileseer(workflow, *words)
    assert run.returncode == 0, run.stderr
    return run.stdout


def published(workflow, arch, operation=OPERATION):
    """What is told of the measurements and the evaluation of an arch; even models of few trees learn something."""
    index, provenance = (
        json.loads(workflow.read(f"results/models/{arch}/{name}.json")) for name in ("index", "provenance")
    )
    assert (index["arch"], index["device_kind"]) == (arch, "recorded") and operation in index["operations"]
    assert b"recorded" in workflow.read(f"results/reports/{arch}.html")
    found = json.loads(workflow.read(f"results/evaluation/{arch}/{operation}.json"))
    assert found["efficiency"]["mean"] > found["baselines"]["random_supported"]["efficiency"]["mean"]
    told = provenance["operations"][operation]["measurements"]
    assert found["device_kind"] == told["device_kind"] == "recorded"
    return told["recording"]["provenance"], found, provenance["files"]


@pytest.fixture
def slice_of_recording(fresh):
    """A workflow whose recording holds the pairs of every fourth problem."""
    path = fresh.folder / f"config/recorded/sm_90/{OPERATION}/pairs.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(table["problem"].to_numpy() % 4 == 0), path)
    return fresh


def test_a_recording_is_replayed_trained_on_and_labelled(slice_of_recording):
    workflow = slice_of_recording
    run = workflow.make("results/models/sm_90", "results/reports/sm_90.html", "--dry-run")
    assert set(re.findall(r"^(\w+) +1$", run.output, re.M)) == {
        "problems", "model", "serving", "evaluation", "publish", "report"
    }  # fmt: skip
    answer(workflow, *words("tileseer run results"))
    recorded, _, files = published(workflow, "sm_90")
    assert recorded["compiler"].startswith("nvcc")
    assert json.loads(workflow.read("results/models/sm_90/index.json"))["device"] == "sm_90_h200"
    pairs = f"config/recorded/sm_90/{OPERATION}/pairs.parquet"
    assert files[pairs] == hashlib.sha256(workflow.read(pairs)).hexdigest()
    assert "config/arch_specs.json" not in files
    shown = answer(workflow, *words("tileseer select results/models/sm_90"))
    assert "device kind: recorded" in shown and "cutlass_conv_fwd_bf16_nhwc_2d_" in shown
    shipped = answer(workflow, *words("tileseer ship results/models/sm_90"))
    assert re.search(r"^forward_bf16: \d+ of \d+ kernels lose \d", shipped, re.M), shipped
    assert not workflow.make("results/models/sm_90", "results/reports/sm_90.html").jobs


def test_a_model_of_cudnn_s_plans_learns_from_the_other_data_type(fresh):
    targets = [f"results/training/{arch}/forward_bf16/feature_spec.json" for arch in ("sm_90_cudnn", "sm_90")]
    planned = fresh.make("-n", "-p", *targets)
    assert set(re.findall(r"--other-dtype (\S+)", planned.output)) - {"--hardware"} == {
        "config/recorded/sm_90_cudnn/forward_fp16"
    }


def test_times_of_others_are_replayed_judged_by_layers_and_score_their_names(fresh):
    arch = "gfx950_mi355x"
    assert f"report:   results/reports/{arch}.html" in answer(fresh, *words("tileseer run --arch gfx950_mi355x"))
    recorded, found, _ = published(fresh, arch)
    assert "training_data_forward_bf16_20.csv, commit 10cdca2d" in recorded["source"] and found["layers"] == 185
    assert list(json.loads(fresh.read(f"results/models/{arch}/index.json"))["operations"]) == [OPERATION]
    manifest = json.loads(fresh.read(f"results/training/{arch}/{OPERATION}/train_manifest.json"))
    assert manifest["unique_problems"] == 185
    assert "10cdca2d64d1193f936e9bc2dca8338f17938e67" in manifest["source"]
    assert b"10cdca2d64d1193f936e9bc2dca8338f17938e67" in fresh.read(f"results/reports/{arch}.html")
    (fresh.folder / "p.csv").write_text("N,C,K,Hi,Wi,Y,X\n2,64,64,56,56,3,3\n1,256,512,14,14,1,1\n")
    tiles = ("64x128x64", "128x128x64")
    names = [f"grouped_conv_forward_bf16_2d_{tile}_{pipeline}" for tile in tiles for pipeline in ("compv3", "compv4")]
    (fresh.folder / "k.txt").write_text("\n".join(names) + "\n")
    options = ["--problems", "p.csv", "--kernels", "k.txt", "--output", "s.csv"]
    shown = answer(fresh, "select", f"results/models/{arch}", "--problem", "N=2,C=64,K=64,Hi=56,Wi=56,Y=3,X=3")
    assert "device kind: recorded" in shown and "10cdca2d64d1193f936e9bc2dca8338f17938e67" in shown
    answer(fresh, "score", f"results/models/{arch}", *options)
    scores = pd.read_csv(fresh.folder / "s.csv")
    assert len(scores) == 8 and scores["in_pool"].all() and set(scores["device_kind"]) == {"recorded"}
    both = scores[scores["kernel"].str.endswith("compv4")].groupby("C")["score"]
    assert (both.nunique() == 1).all()


def find_db_lines():
    """Lines of a find-db: in fp16 forward Winograd wins where it fits, in fp32 backward the GEMM does where it does."""
    for number in range(36):
        taps, channels = 1 + 2 * (number % 2), 16 * (1 + number // 2)
        dims = {"N": 2, "C": channels, "K": 64, "Hi": 14, "Wi": 14, "Y": taps, "X": taps,
                "pad_h": taps // 2, "pad_w": taps // 2}  # fmt: skip
        forward = {"GemmFwdRest": 1.0, "ConvDirectNaiveConvFwd": 9.0} | (
            {"ConvBinWinogradRxSf3x2": 0.5} if taps > 1 else {}
        )
        backward = {"GemmBwdRest": 1.0, "ConvDirectNaiveConvBwd": 0.5 if taps > 1 else 7.0}
        for variant, dtype, times in (("forward", "fp16", forward), ("bwd_data", "fp32", backward)):
            key = Key.of(Problem.from_dims(variant, dtype, **dims))
            scale = channels / 100
            yield f"{key}=" + ";".join(f"{solver}:{scale * ms:.4f},0,algorithm" for solver, ms in times.items())


def test_a_find_db_becomes_a_model_a_report_and_scores_of_every_solver_that_the_model_knows(fresh):
    arch, known = "gfx942_miopen", {}
    (fresh.folder / "gfx942130.HIP.fdb.txt").write_text("\n".join(find_db_lines()) + "\n")
    said = answer(fresh, "import", "find-db", "gfx942130.HIP.fdb.txt", "--arch", "gfx942", "--output", "mine")
    to_train = [line for line in said.splitlines() if line.startswith("  ")]
    small = {"n_estimators": 40, "cv_estimators": 5, "folds": 2, "num_leaves": 7, "min_child_samples": 3}
    sections = {"operations": ["forward_fp16", "bwd_data_fp32"], "model": small}
    fresh.configure(**sections, **yaml.safe_load("\n".join(to_train)))
    fresh.make(f"results/models/{arch}", f"results/reports/{arch}.html")
    for operation in ("forward_fp16", "bwd_data_fp32"):
        assert published(fresh, arch, operation)[1]["layers"] == 36
        pool = pq.read_table(fresh.folder / f"results/training/{arch}/{operation}/candidates.parquet")
        known[operation] = set(pool["solver"].to_pylist())
    assert b"ConvBinWinogradRxSf3x2" in fresh.read(f"results/reports/{arch}.html")
    dims = dict.fromkeys(DIMS, 1) | {"C": 40, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_d": 0}
    rows = [("forward", "fp16"), ("bwd_data", "fp32"), ("forward", "int8")]
    lines = [",".join([variant, dtype, "NCHW", *map(str, dims.values())]) for variant, dtype in rows]
    header = ",".join(["direction", "dtype", "layout", *dims])
    (fresh.folder / "p.csv").write_text("\n".join([header, *lines]) + "\n")
    (fresh.folder / "k.txt").write_text("\n".join(SOLVERS) + "\n")
    options = "--problems p.csv --kernels k.txt --output s.csv"
    scored = tileseer(fresh, "score", f"results/models/{arch}", *options.split())
    table = pd.read_csv(fresh.folder / "s.csv")
    assert {f"{of}_{dtype}": set(part["kernel"]) for (of, dtype), part in table.groupby(["variant", "dtype"])} == known
    assert len(known["forward_fp16"]) == 3 and table["score"].notna().all() and len(table) == 5
    assert f"{len(SOLVERS) - 5} of {len(SOLVERS)} kernels are left out" in scored.stderr
    assert "left out 1 lines: there is no model of forward int8" in scored.stderr
