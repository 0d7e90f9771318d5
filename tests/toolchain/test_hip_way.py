"""``benchmark.device: hip`` from kernels to a model, with the real compiler: only the HIP runtime is another one.

The driver, with its own kernels for operands, reference and comparison, and the kernels of a small pool are compiled
for a gfx950. A stand-in for the HIP runtime is linked into the driver, and what is launched runs on the emulated GPU.
Its events have an invented clock.
"""

from __future__ import annotations

import json

import pytest
import yaml
from journals import read_details
from small_workflow import lay_out, with_few_problems
from test_hip_modules import FORWARD

from tileseer.core.cache import default_folder
from tileseer.data.dataset import Dataset
from tileseer.measure.journal import journals_in, read_journal

MODEL, OPERATION = "results/models/gfx950", "gfx950/forward_bf16"
POOL = {
    "epilogue": "cshuffle",
    "tiles": [{"tile": [64, 64, 64], "wave": [4, 1, 1], "warp_tile": [16, 16, 16], "vectors": [4, 8, 8]}],
    "variants": {
        "forward": {"options": [{"pipeline": "compv3", "schedulers": ["intrawave"]},
                                {"pipeline": "mem", "schedulers": ["intrawave"]}]},
    },
}  # fmt: skip
TIMING = {
    "verify": "pair", "min_time_ms": 0.0, "min_samples": 2, "max_samples": 2, "max_noise": 1.0, "budget_ms": 1.0,
    "sample_ms": 1e-6, "settle_ms": 0.0, "pairs_again": 2, "contenders": 0, "recovery_s": 0.0, "drift_limit": 10.0,
}  # fmt: skip
HIPCC = """\
#!/bin/sh
for word in "$@"; do
    case $word in */conv_library.cpp) set -- "$@" "${word%conv_library.cpp}hip_stand_in.cpp" ;; esac
done
exec "{compiler}" "$@"
"""


@pytest.fixture
def workflow(hip, tmp_path):
    """A workflow that compiles for real and measures on the stand-in."""
    compiler = tmp_path / "hipcc"
    compiler.write_text(HIPCC.replace("{compiler}", str(hip.compiler.path)))
    compiler.chmod(0o755)
    made = lay_out(tmp_path / "workflow")
    (made.folder / "config/rule_sets/pool.yaml").write_text(yaml.safe_dump(POOL))
    train, judge = [(8, 8, 4, 1), (8, 16, 5, 3), (16, 8, 4, 3), (16, 32, 3, 1)], [(8, 24, 4, 3), (16, 16, 5, 1)]
    made.configure(
        configs={"rule_set": "config/rule_sets/pool.yaml", "ndims": [2], "chunks": 1},
        problems=with_few_problems(made, train=train, judge=judge),
        compile={"toolchain": "hipcc", "compiler": str(compiler)},
        ck={"root": str(hip.tree.include.parent)},
        cache={"folder": str(default_folder())},
        benchmark={"device": "hip"},
    )
    made.edit("src/tileseer/facts/benchmark.py", '"standard": Timing(),', f'"standard": Timing(**{TIMING}),')
    return made


def test_the_way_of_a_real_gpu_up_to_its_runtime(workflow):
    run = workflow.make(MODEL)
    assert {"compile", "libraries", "driver", "benchmark", "dataset", "model", "publish"} <= set(run.jobs)
    data = Dataset.read(workflow.folder / f"results/datasets/{OPERATION}")
    assert len(data.problem) == 12 and data.ok.all() and (data.latency_ms > 0).all()
    assert FORWARD in set(data.candidates["kernel"])
    journal = workflow.folder / f"results/journals/{OPERATION}"
    events = [event for path in journal.rglob("*.jsonl") for event in read_details(path)]
    told = [event["device"] for event in events if event["event"] == "session"]
    assert {(device["backend"], device["arch"]) for device in told} == {("hip", "gfx950")}
    pairs = [event for event in events if event["event"] == "pair"]
    assert all(pair["check"]["wrong"] == 0 and pair["check"]["elements"] > 0 for pair in pairs)
    assert sum(read_journal(path)[0].num_rows for path in journals_in(journal)) == 12
    assert json.loads(workflow.read(f"{MODEL}/index.json"))["device_kind"] == "measured"
    assert not workflow.make(MODEL).jobs
