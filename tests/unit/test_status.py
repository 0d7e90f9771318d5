"""How far a workflow is, at three moments of a run."""

import json
import os
from dataclasses import replace

import pyarrow as pa
import pytest

from tileseer.benchmark.receipt import Receipt
from tileseer.cli import main
from tileseer.client import status
from tileseer.core import events, parquet

OP = "forward_bf16"


@pytest.fixture
def results(tmp_path):
    """Two chunks planned; the first one is measured, the second one has its support table."""
    tmp_path = tmp_path / "results"
    for folder in (
        "configs/gfx950",
        *(f"{s}/gfx950/{OP}" for s in ("headers", "build", "support", "benchmark", "journals")),
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / f"configs/gfx950/{OP}.plan.tsv").write_text("chunk\tkernels\tdigest\n0\t4\taa\n1\t5\tbb\n")
    for chunk in "01":
        (tmp_path / f"headers/gfx950/{OP}/{chunk}.tar").touch()
        parquet.write(
            pa.table(
                {
                    "kernel_id": pa.array(["a", "a", "b", "c"]).dictionary_encode(),
                    "rule": pa.array(["", "vectors", "", ""]).dictionary_encode(),
                }
            ),
            tmp_path / f"support/gfx950/{OP}/{chunk}.parquet",
        )
    (tmp_path / f"journals/gfx950/{OP}/0.csv").write_text("kernel,...\nrow\nrow\nrow\n")
    receipt = Receipt(
        arch="gfx950", operation=OP, chunk=0, device="product", device_kind="simulated", measurement_id="0" * 16,
        journal="journal", pairs=3, by_status={"ok": 2, "crash": 1}, malformed_lines=0, rows_sha256="0",
    )  # fmt: skip
    receipt.write(tmp_path / f"benchmark/gfx950/{OP}/0.json")
    return tmp_path


def test_what_is_there_is_counted(results):
    found = status.of_operation(results, "gfx950", OP)
    assert found.chunks_done == {"headers": 2, "compile": 0, "support": 2, "benchmark": 1}
    assert found.pairs_to_measure == 6 and found.rows_measured == 3
    assert found.pairs_by_status == {"crash": 1, "ok": 2}
    assert found.stages_done == () and found.mean_efficiency is None


def test_what_the_builds_took_is_added_up(results, capsys):
    (results / f"build/gfx950/{OP}").mkdir(exist_ok=True)
    for chunk, seconds, size in ((0, 3600.0, 10**6), (1, 1800.0, 2 * 10**6)):
        build = results / f"build/gfx950/{OP}/{chunk}.parquet"
        parquet.write(pa.table({"code_bytes": pa.array([size, None], pa.int64())}), build)
        parquet.write(pa.table({"seconds": [seconds, 0.0]}), build.with_suffix(".costs.parquet"))
    found = status.of_operation(results, "gfx950", OP)
    assert (found.compile_seconds, found.code_bytes) == (5400.0, 3 * 10**6)
    main.main(["status", "--results", str(results)])
    assert "the kernels' builds took 1.5 CPU hours and made 3.0 MB of machine code" in capsys.readouterr().out


def test_libraries_are_counted_where_a_real_gpu_is_measured(results, capsys):
    main.main(["status", "--results", str(results)])
    assert "libraries" not in capsys.readouterr().out
    (results / f"libraries/gfx950/{OP}").mkdir(parents=True)
    (results / "libraries/gfx950/driver.so").touch()
    (results / f"libraries/gfx950/{OP}/1.so").touch()
    (results / f"libraries/gfx950/{OP}/7.so").touch()  # of a chunk that is no more
    assert status.of_operation(results, "gfx950", OP).chunks_done["libraries"] == 1
    main.main(["status", "--results", str(results)])
    assert "libraries" in capsys.readouterr().out


def test_the_rest_is_estimated_from_the_rate(results):
    before = status.of_operation(results, "gfx950", OP)
    assert status.eta_seconds(before, before, 2.0) is None
    with (results / f"journals/gfx950/{OP}/1.csv").open("w") as journal:
        journal.write("kernel,...\nrow\n")
    after = status.of_operation(results, "gfx950", OP)
    assert status.eta_seconds(before, after, 2.0) == pytest.approx(6.0)  # three pairs left, half a pair a second


def test_the_command_says_it_to_people_and_programs(results, capsys):
    assert main.main(["status", "--results", str(results)]) == 1
    text = capsys.readouterr().out
    assert "1/2" in text and "3/6" in text and "not published" in text
    main.main(["status", "gfx950", "--results", str(results), "--json"])
    assert json.loads(capsys.readouterr().out)["operations"][0]["pairs_to_measure"] == 6


def test_without_results_it_says_what_to_do(tmp_path, capsys):
    assert main.main(["status", "--results", str(tmp_path)]) == 2
    assert "run snakemake" in capsys.readouterr().err


def test_a_replayed_recording_has_no_plan_and_a_state(tmp_path, capsys):
    (tmp_path / "datasets/gfx950_mi355x").mkdir(parents=True)
    (tmp_path / f"datasets/gfx950_mi355x/{OP}.parquet").touch()
    assert main.main(["status", "--results", str(tmp_path)]) == 1
    assert f"{OP}" in capsys.readouterr().out


def test_watching_ends_when_all_is_validated(results, capsys, monkeypatch):
    looks = iter([None, None, 95.0])
    seen = status.of_operation(results, "gfx950", OP)
    monkeypatch.setattr(status, "of_operation", lambda *_: replace(seen, mean_efficiency=next(looks)))
    assert main.main(["status", "--results", str(results), "--watch", "0.01"]) == 0
    assert capsys.readouterr().out.count("operation") == 3


@pytest.fixture
def told(results, monkeypatch):
    """A run at work, in the folder of ``results``, of which this process is the Snakemake."""
    run = results.parent / ".snakemake" / events.FILE.format(os.getpid())
    run.parent.mkdir()
    monkeypatch.setenv(events.EVENTS, str(run))
    monkeypatch.setenv(events.LOG, "logs/model.log")
    events.tell("run", arch="gfx950")
    events.tell("plan", jobs=22, told="")
    events.tell("begin", stage="model", of=f"gfx950 {OP}", does="Train the model.")
    events.tell("progress", now="train", done=20, total=80, unit="trees", rate=10.0, left_s=6.0)
    return run


def test_every_stage_at_work_is_shown_with_the_time_left(results, told, capsys):
    assert main.main(["status", "--results", str(results)]) == 1
    lines = f"0 of 22 jobs done; at work:\n  model gfx950 {OP} train 20/80 trees 10 a second 6 s\n"
    assert lines in capsys.readouterr().out
    told.rename(told.with_suffix(f".{2**30}"))  # its process is no more
    main.main(["status", "--results", str(results)])
    assert "at work" not in capsys.readouterr().out


def test_watching_begins_before_the_plan_and_ends_with_the_run(tmp_path, results, told, capsys, monkeypatch):
    seen = replace(status.of_operation(results, "gfx950", OP), mean_efficiency=95.0)
    monkeypatch.setattr(status, "of_operation", lambda *_: seen)
    later = tmp_path / "later"
    (results / "configs").rename(later)
    steps = iter([lambda: later.rename(results / "configs"), lambda: told.unlink()])
    monkeypatch.setattr("tileseer.cli.status.time.sleep", lambda _: next(steps)())
    assert main.main(["status", "--results", str(results), "--watch", "5"]) == 0
    assert next(steps, None) is None and "95.0 %" in capsys.readouterr().out


def test_the_arch_of_the_plan_is_meant_where_there_are_datasets_of_others(results, capsys):
    (results / "datasets/gfx950_mi355x").mkdir(parents=True)
    (results / f"datasets/gfx950_mi355x/{OP}.parquet").touch()
    main.main(["status", "--results", str(results)])
    assert capsys.readouterr().out.startswith("gfx950, chunks done")
