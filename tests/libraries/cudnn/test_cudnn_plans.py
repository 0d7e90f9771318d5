"""cuDNN's plans in the benchmark stage, without a GPU: a stand-in for the frontend and the driver of the host."""

from __future__ import annotations

import json
import runpy

import pytest
from journals import journal_rows, read_details
from repository import ROOT

from tileseer.core import parquet
from tileseer.data.assembly import ChunkFiles, write_dataset
from tileseer.data.dataset import Dataset
from tileseer.facts.benchmark import TIMINGS, Timing
from tileseer.libraries.cudnn.device_plans import plan_of_kernel
from tileseer.libraries.cudnn.kernel import Plan
from tileseer.measure import journal, receipt, session
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options, problem_numbers
from tileseer.problems import problem_table
from tileseer.problems.problem import Problem
from tileseer.problems.problem_table import ProblemEntry

STAND_IN = ROOT / "tests/builders/stand_in_cudnn"
TIMING = {"min_time_ms": 0.5, "sample_ms": 0.1, "min_samples": 4, "max_samples": 50, "settle_ms": 0.0}
OPTIONS = launch_options(Timing(**TIMING))
SIZES = {"N": 2, "C": 4, "Hi": 7, "Wi": 6, "Y": 3, "X": 2, "pad_h": 1}
BAD = {"eng3": "unsupported", "eng5": "unsupported", "eng6": "wrong_result", "eng9": "wrong_result",
       "eng10": "unsupported"}  # fmt: skip
GOOD = {"eng0_k2=0", "eng0_k2=1", "eng1_k2=0", "eng1_k2=1", "eng2"}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{STAND_IN}")


@pytest.fixture
def supervisor(libraries):
    with Supervisor(libraries[0], limits=WorkerLimits(pair_s=3), plans="cudnn") as made:
        yield made


def measured(supervisor, problem, plan):
    kernel = Plan.parse(
        f"cudnn_conv_{problem.variant.replace('forward', 'fwd')}_{problem.dtype}_{problem.ndim}d_{plan}"
    )
    numbers = problem_numbers(vars(problem), problem.variant, 1)
    return supervisor.measure(Request(("cudnn",), kernel.name, numbers, OPTIONS))


def offered(supervisor, problem):
    numbers = problem_numbers(vars(problem), problem.variant, 1)
    return supervisor.offered(numbers, problem.dtype, problem.ndim)


@pytest.mark.parametrize("variant", ["forward", "bwd_data", "bwd_weight"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_plan_computes_what_the_driver_s_reference_does(supervisor, variant, dtype):
    volume = {"Di": 4, "Z": 2, "stride_d": 2}
    grouped = {"G": 2, "stride_h": 2, "dilation_w": 2}
    for more in ({}, volume, grouped):
        problem = Problem.from_dims(variant, dtype, **(SIZES | {"K": 20} | more))
        outcome = measured(supervisor, problem, "eng1_k2=0")
        assert outcome.status == "ok" and outcome.reply["check"]["worst"] < 1, outcome
        assert outcome.reply["result"]["workspace_bytes"] == 64 and outcome.reply["resources"]["registers"] == -1
        assert outcome.reply["result"]["median_ms"] == pytest.approx(0.0247, rel=0.05)


def test_what_a_plan_does_is_its_status(supervisor):
    problem = Problem.from_dims("forward", "bf16", **SIZES, K=10)
    names, reason = offered(supervisor, problem)
    assert set(names) == GOOD | BAD.keys() and not reason
    outcomes = {name: measured(supervisor, problem, name) for name in sorted(set(names))}
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(GOOD, "ok") | BAD
    assert outcomes["eng3"].error == "it cannot be built"
    assert outcomes["eng10"].error == f"it needs a workspace of {1 << 40} bytes"
    assert "not finite" in outcomes["eng9"].error
    # A plan of another problem is none of this one.
    assert measured(supervisor, problem, "eng62_k2=7").error == "cuDNN does not offer this plan for the problem"
    nothing = Problem.from_dims("forward", "bf16", **SIZES, K=18)
    assert offered(supervisor, nothing) == ([], "no engine takes this problem")
    assert measured(supervisor, nothing, "eng2").status == "unsupported"


@pytest.mark.parametrize(("channels", "plan", "status"), [(12, "eng16", "crash"), (14, "eng17", "run_timeout")])
def test_a_fault_costs_its_plan_alone(supervisor, channels, plan, status):
    problem = Problem.from_dims("forward", "bf16", **SIZES, K=channels)
    outcome = measured(supervisor, problem, plan)
    assert outcome.status == status and len(outcome.faults) == 2 and "in phase verify" in outcome.error
    assert measured(supervisor, problem, "eng2").status == "ok"


def test_a_name_leads_to_the_plan():
    plan = Plan("bwd_weight", "fp16", 3, 62, "k2=7_k13=1")
    assert plan_of_kernel(plan.name) == ("fp16", 3, plan.plan)


@pytest.fixture
def stages(libraries, tmp_path, monkeypatch):
    """Return the stages plans and benchmark as a function of their names, and the folder of their files."""
    channels = (10, 12, 18, 22, 40)
    entries = [ProblemEntry(Problem.from_dims("forward", "bf16", **SIZES, K=k), f"net{k}", "") for k in channels]
    parquet.write_table(problem_table.problem_table(entries, []), tmp_path / "problems.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "boards", lambda backend: [])
    monkeypatch.setitem(TIMINGS, "standard", Timing(**TIMING, pairs_again=8))
    files = {
        "plans": "--build build.parquet --support support.parquet",
        "benchmark": "--build build.parquet --support support.parquet --journal journals/0.csv "
        "--again journals/again/0.csv --receipt receipt.json",
    }

    def run(name, device="cuda"):
        settings = {"benchmark": {"device": device}, "lock": {"folder": str(tmp_path / "locks")}}
        return runpy.run_path(str(ROOT / f"workflow/scripts/{name}.py"))["main"]([
            "--arch", "sm_90_cudnn", "--operation", "forward_bf16", "--chunk", "0", "--problems", "problems.parquet",
            "--hardware", str(ROOT / "config/hardware.yaml"), "--product", "sm_90_h200",
            "--coefficients", str(ROOT / "config/simulated_device.yaml"), "--settings", json.dumps(settings),
            "--driver", libraries[0], *files[name].split(),
        ])  # fmt: skip

    return run, tmp_path


def test_plans_become_a_measured_dataset_with_the_library_s_order(stages, capfd):
    run, folder = stages
    assert not run("plans")
    printed = capfd.readouterr().out
    assert "left out 2 plans whose names cudnn kernels do not have, such as " in printed
    assert "no plans for 1 problems" in printed and "(no engine takes this problem)" in printed
    support = parquet.read_table(folder / "support.parquet").to_pandas()
    ranks = support.groupby("problem_key", observed=True)["rank"].agg(["min", "max", "nunique", "count"])
    # Of a plan that is listed twice the first place counts; what cannot be read leaves a gap.
    assert (ranks["min"] == 0).all() and (ranks["nunique"] == ranks["count"]).all()
    assert sorted(ranks["count"]) == [5, 5, 6, 10]
    assert not run("benchmark")
    told = receipt.Receipt.read(folder / "receipt.json")
    assert told.by_status == {"crash": 1, "ok": 20, "unsupported": 3, "wrong_result": 2} and told.device == "sm_90_h200"
    # Contenders are measured again by another worker.
    assert told.again and told.differences
    rows = journal_rows(folder / "journals")
    assert rows and not run("benchmark") and journal_rows(folder / "journals") == rows
    chunk = ChunkFiles(folder / "build.parquet", folder / "support.parquet", folder / "receipt.json")
    problems = parquet.read_table(folder / "problems.parquet", problem_table.SCHEMA)
    pairs, _ = write_dataset([chunk], problems, "sm_90_cudnn", "forward_bf16", folder / "dataset")
    assert pairs.num_rows == len(support) and pairs["rank"].null_count == 0
    data = Dataset.read(folder / "dataset")
    assert (data.library, data.device_kind) == ("cudnn 91900", "measured") and (data.rank >= 0).all()
    assert len(data.rank) == len(support) - 3, "three pairs could not run at all"
    begin, *_ = read_details(folder / "journals/0.details.jsonl")
    assert begin["device"]["plans"] == "cudnn 91900"


def test_another_version_of_the_library_is_another_measurement(stages, monkeypatch, capfd):
    run, folder = stages
    run("plans")
    run("benchmark")
    ids = set(journal.read_journal(folder / "journals/0.csv")[0]["measurement_id"].to_pylist())
    monkeypatch.setenv("STAND_IN_CUDNN_VERSION", "92000")
    assert run("benchmark") == 2
    assert "the plans are those of cudnn 91900, and this is cudnn 92000" in capfd.readouterr().err
    run("plans")
    assert not run("benchmark")
    table = journal.read_journal(folder / "journals/0.csv")[0]
    assert len(ids) == 1 and len(set(table["measurement_id"].to_pylist())) == 2


def test_what_is_missing_is_said(stages, monkeypatch, capfd):
    run, _ = stages
    assert run("plans", device="simulated") == 2
    assert "add --configfile config/cudnn.yaml" in capfd.readouterr().err
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert run("plans") == 2
    assert "pip install nvidia-cudnn-frontend" in capfd.readouterr().err
