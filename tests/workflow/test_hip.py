"""``benchmark.device: hip`` with config/hip.yaml and config/smoke.yaml, from kernels to model; and ``emulated``.

A compiler that builds host functions stands for hipcc, so that only the driver of a real GPU is left out.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
import yaml
from fake_machine import install_compiler
from journals import read_details
from small_workflow import ROOT, with_fake_compiler, with_few_problems

from tileseer.data.dataset import Dataset
from tileseer.measure.device import STATUSES
from tileseer.measure.journal import journals_in, read_journal

MODEL, VERDICTS = "results/models/gfx942", "results/verdicts/gfx942.tsv"
OPERATION = "gfx942/forward_bf16"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache: the kernels are compiled once for all workflows."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def machine(fresh, tmp_path, compiled):
    """A workflow with the two overlays and problems of its own, and the folder of its compiler."""
    if not shutil.which("c++"):
        pytest.skip("no host C++ compiler")
    folder = with_fake_compiler(fresh, tmp_path / "machine")
    install_compiler(folder / "hipcc", "host_hipcc")
    (folder / "fail").unlink()
    own = yaml.safe_load((fresh.folder / "config/config.yaml").read_text())
    hip, smoke = (yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()) for name in ("hip", "smoke"))
    train = [(8, 8, 4, 1), (8, 16, 5, 3), (16, 8, 4, 3), (16, 32, 3, 1), (24, 8, 5, 1), (8, 32, 4, 3)]
    judge = [(8, 24, 4, 3), (16, 16, 5, 1), (32, 8, 3, 3), (24, 24, 4, 1)]
    problems = smoke["problems"] | with_few_problems(fresh, train=train, judge=judge)
    fresh.configure(
        **{name: smoke[name] for name in ("operations", "model")}, arch=hip["arch"], problems=problems,
        configs=smoke["configs"], compile=own["compile"] | hip["compile"],
        benchmark=hip["benchmark"] | smoke["benchmark"], cache={"folder": str(compiled)},
    )  # fmt: skip
    return fresh


def test_a_model_of_measured_times(machine):
    run = machine.make(MODEL)
    assert {"compile", "libraries", "driver", "benchmark", "dataset", "model", "publish"} <= set(run.jobs)
    assert any("telemetry: amdsmi" in path.read_text() for path in machine.folder.glob("logs/*/*/benchmark/*.log"))
    statuses = defaultdict(set)
    data = Dataset.read(machine.folder / f"results/datasets/{OPERATION}")
    for kernel, status in zip(data.candidates["kernel"][data.candidate], data.status, strict=True):
        statuses[kernel].add(STATUSES[status])
    assert (np.isfinite(data.latency_ms) == data.ok).all() and len(statuses) == 10
    for kernel, found in statuses.items():
        crashes, wrong = "_mem_" in kernel and "_64x128x" in kernel, "_32x128x" in kernel
        assert found == {"crash" if crashes else "wrong_result" if wrong else "ok"}, kernel
    index = json.loads(machine.read(f"{MODEL}/index.json"))
    assert index["device_kind"] == "measured"
    journal = machine.folder / f"results/journals/{OPERATION}"
    rows = pa.concat_tables(read_journal(path)[0] for path in journals_in(journal))
    assert {*rows["status"].to_pylist()} == {"ok", "wrong_result", "crash", "skipped"}
    assert {*rows["device_kind"].to_pylist()} == {"measured"}
    events = [event for path in journal.rglob("*.jsonl") for event in read_details(path)]
    assert {event["event"] for event in events} >= {"session", "pair", "batch"}
    assert not machine.make(MODEL).jobs


def test_an_emulated_device_gives_verdicts_and_no_model(machine):
    # A host computes all tiny problems of each kernel: a right one and one of each fault are enough.
    path = machine.folder / "config/rule_sets/smoke.yaml"
    rules = yaml.safe_load(path.read_text())
    tiles = [one | ({"not_with": ["mem"]} if one["tile"][:2] == [32, 128] else {}) for one in rules["tiles"][3:]]
    path.write_text(yaml.safe_dump(rules | {"tiles": tiles}))
    overlay = yaml.safe_load((ROOT / "config/emulated.yaml").read_text())
    machine.configure(benchmark=overlay["benchmark"])
    reason = "emulated GPU has no times to train on; build its verdicts"
    assert reason in machine.refuse(MODEL)
    run = machine.make(VERDICTS)
    assert run.jobs["verdicts"] == 2 and not {"benchmark", "dataset", "model"} & set(run.jobs)
    rows = list(csv.DictReader(machine.read(VERDICTS).decode().splitlines(), delimiter="\t"))
    assert len(rows) == 3 and {row["device_kind"] for row in rows} == {"emulated"}
    for row in rows:
        broken = "crash" if "_mem_" in row["kernel"] and "_64x128x" in row["kernel"] else "ok"
        assert row["status"] == ("wrong_result" if "_32x128x" in row["kernel"] else broken), row
    machine.configure(benchmark={})
    assert "add --configfile config/emulated.yaml" in machine.refuse(VERDICTS, "-R", "verdict_table")
