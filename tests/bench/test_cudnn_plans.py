"""The recording of cuDNN's plans, without a GPU: a fake library in place of the frontend."""

import csv
import io
import lzma
import math
import statistics
import sys
from pathlib import Path

import pandas as pd
import pytest

from tileseer.conv.problem import DIMS, FIELDS, Problem
from tileseer.dataset import recording

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture
def plans(monkeypatch):
    """The measuring script's modules and the fake library."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/gpu"))
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'benchmarks/gpu'}:{ROOT / 'src'}")
    import fake_plans
    from cudnn_plans import case, journal, record

    return type("Modules", (), {"fake": fake_plans, "case": case, "journal": journal, "record": record})


def named(plans, result):
    rows = [dict(zip(plans.case.COLUMNS, row, strict=True)) for row in result["plans"]]
    return {row["name"]: row for row in rows}


def test_what_a_plan_does_is_its_status(plans):
    bench = plans.fake.FakeBench(plans.fake.SCENARIOS[2])
    result = plans.case.measure(bench, plans.case.Limits(), "seed", rivals=["torch"])
    rows = named(plans, result)
    told = {name: row["status"] for name, row in rows.items()}
    assert told == {
        "eng0_k1=0": "ok", "eng0_k1=1": "ok", "eng1_k2=0": "ok", "eng1_k2=1": "ok", "eng2": "ok",
        "eng3": "unsupported", "eng4": "unsupported", "eng5": "wrong_result", "eng6": "wrong_result", "eng7": "skipped",
    }  # fmt: skip
    # The time of a plan that is refused, wrong or too greedy is not used, however short.
    assert not any(rows[name]["us"] for name in ("eng3", "eng4", "eng5", "eng6", "eng7"))
    assert rows["eng7"]["workspace"] == 1 << 40
    assert set(result["contest"]["us"]) == {"0", "1", "2", "4", "torch"}


def test_a_slow_plan_keeps_one_sample_and_close_ones_get_more(plans):
    rows = named(plans, plans.case.measure(plans.fake.FakeBench(plans.fake.GOOD), plans.case.Limits(), "b"))
    assert len(rows["eng0_k1=1"]["us"]) == 5
    assert rows["eng1_k2=1"]["brief"] and len(rows["eng1_k2=1"]["us"]) == 1


def test_the_order_is_random_and_the_same_for_a_seed(plans):
    def order(seed):
        bench = plans.fake.FakeBench(plans.fake.GOOD)
        plans.case.measure(bench, plans.case.Limits(), seed)
        return bench.asked

    assert order("a") == order("a")
    assert len({tuple(order(seed)) for seed in "abcd"}) > 1


def test_contenders_take_turns_with_the_first_choice_and_pytorch(plans):
    bench = plans.fake.FakeBench(plans.fake.SCENARIOS[7])
    rivals = [plans.case.DEFAULT, plans.case.BENCHMARK]
    contest = plans.case.measure(bench, plans.case.Limits(contest_s=100), "seed", rivals=rivals)["contest"]
    # The first plan cannot be built: the library's own choice is the next one, although it is not close to the best.
    assert contest["first"] == 1
    assert {name: len(row) for name, row in contest["us"].items()} == dict.fromkeys(contest["us"], 9)
    medians = {name: statistics.median(row) for name, row in contest["us"].items()}
    assert min(medians, key=medians.get) == "2" and medians["torch"] == pytest.approx(40, rel=0.02)
    last = bench.asked[-9 * len(medians) :]
    turns = [last[place : place + len(medians)] for place in range(0, len(last), len(medians))]
    assert all(len({contender for contender, _ in turn}) == len(medians) for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1


def test_a_case_that_takes_too_long_skips_plans_but_not_the_first_choice(plans):
    bench = plans.fake.FakeBench(plans.fake.GOOD)
    result = plans.case.measure(bench, plans.case.Limits(case_s=0.0), "seed", rivals=["torch"])
    assert [row["status"] for row in named(plans, result).values()] == ["ok"] + ["skipped"] * 4
    assert result["contest"]["first"] == 0 and set(result["contest"]["us"]) == {"0", "torch"}


def write_cases(path, channels, split="train"):
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["problem_key", "split", "network", "layer", *FIELDS])
    for c in channels:
        problem = Problem.from_dims("forward", "bf16", C=c, K=8, Hi=c + 4, Wi=7)
        table.writerow([problem.key, split, "net", "layer", *(getattr(problem, field) for field in FIELDS)])
    path.write_bytes(lzma.compress(text.getvalue().encode()))


def record(plans, monkeypatch, folder, *extra, seconds=60):
    arguments = ["--cases", folder / "cases.csv.xz", "--carried", folder / "carried", "--output", folder / "out"]
    words = [*arguments, "--seconds", seconds, "--worker", HERE / "fake_plans.py", *extra]
    monkeypatch.setattr(sys, "argv", ["record", *map(str, words)])
    (folder / "out").mkdir(exist_ok=True)
    return plans.record.main()


def events(plans, folder):
    return [event for path in plans.journal.files([folder]) for event in plans.journal.read(path)]


def test_a_fault_costs_its_plan_and_the_next_run_goes_on(plans, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(plans.record, "CASE_S", 3.0)
    write_cases(tmp_path / "cases.csv.xz", [2, 3, 5, 6, 9, 10])
    (tmp_path / "carried").mkdir()
    assert record(plans, monkeypatch, tmp_path, "--gpus", "a", "b", "--first", 4) == 0
    told = {event["case"]: event for event in events(plans, tmp_path / "out") if event["event"] == "case"}
    assert len(told) == 4
    of = {int(key): told[f"forward_bf16/{Problem.from_dims('forward', 'bf16', C=key, K=8, Hi=key + 4, Wi=7).key}"]
          for key in (2, 3, 5, 6)}  # fmt: skip
    deadly = named(plans, of[3])["eng8"]
    assert deadly["status"] == "crash" and len(of[3]["faults"]) == 1 and "SIGSEGV" in of[3]["faults"][0]
    assert named(plans, of[3])["eng0_k1=1"]["status"] == "ok"
    assert of[5]["failed"] == "unsupported" and of[6]["failed"] == "crash"
    # What was measured is carried to the next run, which measures the rest.
    for path in (tmp_path / "out").iterdir():
        path.rename(tmp_path / "carried" / path.name)
    assert record(plans, monkeypatch, tmp_path, "--gpus", "a", "broken") == 0
    assert "GPU 1 is left out" in capsys.readouterr().out
    rest = [event["case"] for event in events(plans, tmp_path / "out") if event["event"] == "case"]
    assert len(rest) == 2 and not set(rest) & set(told)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["cases.2.jsonl.xz"]


def test_journals_become_a_recording(plans, monkeypatch, tmp_path):
    write_cases(tmp_path / "cases.csv.xz", [2, 5, 9])
    (tmp_path / "carried").mkdir()
    assert record(plans, monkeypatch, tmp_path, "--gpus", "a", "b") == 0
    from cudnn_plans import tables

    folder = tmp_path / "recorded"
    words = ["--cases", tmp_path / "cases.csv.xz", "--journals", tmp_path / "out", "--output", folder]
    monkeypatch.setattr(sys, "argv", ["tables", *map(str, words)])
    assert tables.main() == 0
    assert recording.load(folder).provenance["boards"] == "2"
    read = {
        name: pd.read_parquet(folder / f"forward_bf16/{name}.parquet")
        for name in ("problems", "kernels", "pairs", "rivals")
    }
    assert len(read["problems"]) == 3 and sorted(read["rivals"]["problem"].tolist()) == sorted(
        set(read["pairs"]["problem"])
    )
    pairs = read["pairs"].join(read["kernels"]["kernel"].rename("name"), on="kernel")
    pairs = pairs.set_index(pairs["name"].str.removeprefix("cudnn_conv_fwd_bf16_2d_"))
    best = pairs.loc["eng0_k1=1"]
    assert (
        (best["status"] == "ok").all()
        and (best["turns"] == 9).all()
        and best["median_us"].tolist() == pytest.approx([20, 20], rel=0.02)
    )
    assert pairs.loc["eng5", "status"] == "wrong_result" and math.isnan(pairs.loc["eng5", "median_us"])
    assert read["rivals"]["first_us"].tolist() == pytest.approx([30, 30], rel=0.02)
    assert read["rivals"]["torch_us"].tolist() == pytest.approx([40, 40], rel=0.02)


def test_a_plan_that_hangs_is_given_up(plans, monkeypatch, tmp_path):
    gpu = plans.record.Gpu(0, "a", (str(HERE / "fake_plans.py"),), 3.0)
    given = {"case": "x", "split": "train", "problem": plans.record.problem("forward", "bf16", {"C": 4})}
    event = gpu.measure(given, ["torch"])
    endless = plans.record.problem("forward", "bf16", {"C": 8})
    slow = gpu.measure({"case": "y", "split": "train", "problem": endless}, ["torch"])
    assert slow["failed"] == "run_timeout" and len(slow["faults"]) == 1
    gpu.stop()
    assert named(plans, event)["eng9"]["status"] == "crash" and "run_timeout" in event["faults"][0]


def test_nothing_is_measured_if_the_self_test_fails(plans, monkeypatch, tmp_path, capsys):
    write_cases(tmp_path / "cases.csv.xz", [2])
    (tmp_path / "carried").mkdir()
    monkeypatch.setattr(plans.record, "SELF_TEST", (("forward", "bf16", {"C": 5}),))
    assert record(plans, monkeypatch, tmp_path, "--gpus", "a") == 2
    assert "the self-test failed" in capsys.readouterr().err and not list((tmp_path / "out").iterdir())


def test_the_run_ends_in_time_whatever_is_in_flight(plans, monkeypatch, tmp_path):
    monkeypatch.setattr(plans.record, "LAST_S", 2.0)
    write_cases(tmp_path / "cases.csv.xz", [9, 4])
    (tmp_path / "carried").mkdir()
    assert record(plans, monkeypatch, tmp_path, "--gpus", "a", seconds=8) == 0
    assert [event["event"] for event in events(plans, tmp_path / "out")] == ["gpu", "case"]


def test_a_journal_that_was_cut_off_keeps_its_whole_parts(plans, tmp_path):
    path = tmp_path / "cases.1.jsonl.xz"
    written = plans.journal.Journal(path)
    for name in ("a", "b"):
        written.add({"event": "case", "case": name})
        written.flush()
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert plans.journal.done([path]) >= {"a"}
    path.write_bytes(data)
    assert plans.journal.done([path]) == {"a", "b"}


def test_a_list_that_is_cut_anywhere_is_balanced():
    with lzma.open(ROOT / "benchmarks/gpu/cudnn_cases.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["variant"], row["dtype"], row["problem_key"]) for row in rows}) == len(rows)
    families = {split: {row["network"] for row in rows if row["split"] == split} for split in ("train", "validation")}
    assert not families["train"] & families["validation"]
    for variant in ("forward", "bwd_data", "bwd_weight"):
        for dtype in ("bf16", "fp16"):
            count = [row["split"] for row in rows if (row["variant"], row["dtype"]) == (variant, dtype)]
            assert count.count("train") >= 900 and count.count("validation") >= 300
    for cut in (600, 1500, 3000):
        part = rows[:cut]
        for field, values in (("variant", 3), ("dtype", 2)):
            counts = [sum(row[field] == value for row in part) for value in {row[field] for row in part}]
            assert len(counts) == values and max(counts) < 1.2 * min(counts)
        assert 0.2 < sum(row["split"] == "validation" for row in part) / cut < 0.3
    assert Problem.from_dims("forward", "bf16", **{name: int(rows[0][name]) for name in DIMS})


def picked(plans, scenario, name):
    bench = plans.fake.FakeBench(plans.fake.SCENARIOS[scenario])
    rivals = [plans.case.DEFAULT, plans.case.BENCHMARK]
    limits = plans.case.Limits(close=math.inf, contest_s=100)
    choose = (lambda names: names.index(name)) if name else lambda names: -1
    return plans.case.measure(bench, limits, "seed", rivals=rivals, choose=choose) | {"case": "forward_bf16/x"}


def test_a_pick_contends_with_the_own_choice_alone(plans):
    from cudnn_plans import retime

    result = picked(plans, 7, "eng1_k2=1")
    # The first plan cannot be built, so that the own choice is the next one; a slow pick contends nevertheless.
    assert set(result["contest"]["us"]) == {"1", "4", "torch", "torch_benchmark"} and result["pick"] == 4
    assert retime.times(result)["pick"] == pytest.approx(90, rel=0.02)
    assert retime.times(result)["first"] == pytest.approx(30, rel=0.02)


def test_a_pick_that_fails_is_replaced_by_the_own_choice_and_told(plans):
    from cudnn_plans import retime

    for name in ("eng3", "eng4", "eng5", "eng7", ""):
        result = picked(plans, 2, name)
        found = retime.times(result)
        assert found["pick"] == found["first"] == pytest.approx(30, rel=0.02)
        assert len(retime.failed_picks([result])) == bool(name)


def test_gains_are_those_of_the_pick(plans):
    from cudnn_plans import retime

    events = [picked(plans, 2, "eng0_k1=1"), picked(plans, 2, ""), picked(plans, 2, "eng1_k2=1")]
    rows = {(row["direction"], row["against"]): row for row in retime.gains(events)}
    row = rows["forward", "cuDNN's first plan"]
    assert row["layers"] == 3 and row["another plan"] == "66.7%" and row["slower by 2 % or more"] == "33.3%"
    assert float(row["geometric mean"]) == pytest.approx((30 / 20 * 30 / 90) ** (1 / 3), rel=0.03)
    assert float(row["sum of times"]) == pytest.approx(90 / 140, rel=0.03)
    assert rows["all", "PyTorch's default"]["layers"] == 3


def test_only_unseen_layers_are_timed_again(plans, monkeypatch, tmp_path, capsys):
    from cudnn_plans import retime

    write_cases(tmp_path / "cases.csv.xz", [9, 10], "validation")
    rows = lzma.decompress((tmp_path / "cases.csv.xz").read_bytes()).decode()
    train = Problem.from_dims("forward", "bf16", C=12, K=8, Hi=16, Wi=7)
    rows += (
        ",".join(map(str, [train.key, "train", "net", "layer", *(getattr(train, field) for field in FIELDS)])) + "\n"
    )
    (tmp_path / "cases.csv.xz").write_bytes(lzma.compress(rows.encode()))
    monkeypatch.setattr(retime.Selectors, "build", lambda self, operation: tmp_path)
    words = ["--cases", tmp_path / "cases.csv.xz", "--models", tmp_path, "--output", tmp_path, "--seconds", "40"]
    worker = ["--worker", HERE / "fake_plans.py", "--gpus", "a", "b"]
    monkeypatch.setattr(sys, "argv", ["retime", *map(str, [*words, *worker])])
    assert retime.main() == 0
    assert len(retime.retimed([tmp_path / "retimed.jsonl.xz"])) == 2
    assert "| forward | cuDNN's first plan | 2 | 100.0% | 1.5" in capsys.readouterr().out
