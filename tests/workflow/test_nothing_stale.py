"""Ways in which old results might count as new: each runs again, or is refused with one line."""

from __future__ import annotations

import os
import shutil
import signal
import time

import yaml
from small_workflow import TARGETS, Workflow, hashes

STATEMENT = "\nADDED = 1\n"
MODEL = "results/training/gfx950/forward_bf16/model_tflops.lgbm"


def wait_for(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.01)


def ended(process):
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def finds(process, path):
    """Wait until a run has written ``path``, or ended."""
    wait_for(lambda: path.exists() or process.poll() is not None)


def change_hardware(workflow, **values):
    path = workflow.folder / "config/hardware.yaml"
    table = yaml.safe_load(path.read_text())
    table["products"]["gfx950_mi355x"] |= values
    path.write_text(yaml.safe_dump(table, sort_keys=False))


def test_code_that_is_edited_during_a_run_and_taken_back_makes_nothing(made, unmeasured):
    source = unmeasured.folder / "src/tileseer/core/errors.py"
    before = source.read_text()
    process = unmeasured.start()
    finds(process, unmeasured.folder / "logs/gfx950/forward_bf16/benchmark/0.log")
    source.write_text(before + STATEMENT)
    status, output = ended(process)
    source.write_text(before)
    assert status != 0 and "error: the sources changed since this run began; run it again" in output
    assert not (unmeasured.folder / "results/models/gfx950").exists()
    unmeasured.make()
    assert hashes(unmeasured) == hashes(made[0])


def test_a_comment_that_is_written_during_a_run_disturbs_nobody(made, unmeasured):
    source = unmeasured.folder / "src/tileseer/core/errors.py"
    process = unmeasured.start()
    finds(process, unmeasured.folder / "logs/gfx950/forward_bf16/benchmark/0.log")
    source.write_text(source.read_text() + "# A comment.\n")
    status, output = ended(process)
    assert status == 0, output
    assert hashes(unmeasured) == hashes(made[0])


def test_a_table_that_is_changed_during_a_run_and_taken_back_makes_nothing(made, unmeasured):
    path = unmeasured.folder / "config/hardware.yaml"
    before = path.read_text()
    process = unmeasured.start()
    finds(process, unmeasured.folder / "logs/gfx950/forward_bf16/benchmark/0.log")
    change_hardware(unmeasured, hbm_tb_per_s=1.0)
    status, output = ended(process)
    path.write_text(before)
    assert status != 0 and "error: config/hardware.yaml: changed" in output
    unmeasured.make()
    assert hashes(unmeasured) == hashes(made[0])


def test_an_input_with_an_older_time_of_change_is_another_input(copy):
    path = copy.folder / "config/hardware.yaml"
    change_hardware(copy, hbm_tb_per_s=1.0)
    os.utime(path, (1e9, 1e9))
    assert {"compile", "support", "benchmark", "model"} <= set(copy.make("-n").planned)


def test_results_without_the_record_of_snakemake_are_made_again(copy):
    shutil.rmtree(copy.folder / ".snakemake")
    copy.configure(model={"num_leaves": 5, "n_estimators": 10})
    run = copy.make()
    assert "results/ was made by another run: " in run.output
    assert run.measured == 0 and run.jobs["problems"] == run.jobs["model"] == 1
    without = copy.read(MODEL)
    assert "Nothing to be done" in copy.make().output
    copy.configure(model={"num_leaves": 7, "n_estimators": 10})
    copy.make()
    assert copy.read(MODEL) != without


def test_two_folders_that_share_results_take_turns(made, copy, tmp_path):
    other = Workflow(tmp_path / "other")
    shutil.copytree(copy.folder, other.folder, ignore=shutil.ignore_patterns("results", ".snakemake"))
    (other.folder / "results").symlink_to(copy.folder / "results")
    other.configure(model={"num_leaves": 5, "n_estimators": 10})
    process = other.start()
    lock = copy.folder / "results/.lock"
    first = lock.read_text()
    wait_for(lambda: lock.read_text() not in ("", first) or process.poll() is not None)
    copy.configure(model={"num_leaves": 3})
    refused = copy.refuse()
    assert f"{(copy.folder / 'results').resolve()}: another run makes these results: process " in refused
    assert "Nothing to be done" not in refused
    # A dry run beside it is no run.
    copy.make("-n")
    status, output = ended(process)
    assert status == 0, output
    copy.configure(model={"num_leaves": 7, "n_estimators": 10})
    assert copy.make().jobs["model"] == 1
    assert hashes(copy) == hashes(made[0])
    assert other.make("-n").planned["model"] == 1


def test_a_job_whose_run_was_killed_does_not_replace_what_the_next_run_makes(made, unmeasured):
    unmeasured.edit("src/tileseer/measure/benchmark.py", "PAIRS_BETWEEN_WRITES = 65536", "PAIRS_BETWEEN_WRITES = 2")
    process = unmeasured.start()
    log = unmeasured.folder / "logs/gfx950/forward_bf16/benchmark/0.log"
    finds(process, log)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run = unmeasured.make(*TARGETS)
    assert "--unlock" not in run.output
    assert hashes(unmeasured) == hashes(made[0])
