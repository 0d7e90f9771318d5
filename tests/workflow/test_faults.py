"""Interruptions, concurrent runs and mistakes: nothing that was measured is lost or measured twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import time

from journals import as_lines, journal_rows
from small_workflow import TARGETS, hashes, lay_out

from tileseer.core.locks import device_locks, hold_first_free
from tileseer.learn import model_files

DATASET = "results/datasets/gfx950/forward_bf16/pairs.parquet"


def measured_rows(workflow):
    return journal_rows(workflow.folder / "results/journals")


def interrupted(workflow):
    """Return a journal as its job leaves it that is killed at its end."""
    return as_lines(workflow.folder / "results/journals/gfx950/forward_bf16/0.csv")


def wait_for(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the moment to interrupt never came"
        time.sleep(0.01)


def slow(workflow):
    """Write to the journal after every few pairs, so that there is a middle to interrupt."""
    workflow.edit("src/tileseer/measure/benchmark.py", "PAIRS_BETWEEN_WRITES = 65536", "PAIRS_BETWEEN_WRITES = 2")


def test_a_run_that_is_interrupted_and_then_killed_goes_on(made, unmeasured):
    slow(unmeasured)
    # Shells let what they run in the background ignore the signal, and all that this starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = unmeasured.start(*TARGETS, "--logger", "tileseer")
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: len(measured_rows(unmeasured)) > 20)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, _ = process.communicate()
    assert process.returncode != 0 and "Traceback" not in output
    assert re.search(r"^interrupted: \d+ of \d+ jobs are done; the same command goes on from there$", output, re.M)
    assert "failed" not in output
    first = measured_rows(unmeasured)

    process = unmeasured.start()
    wait_for(lambda: len(measured_rows(unmeasured)) > len(first) + 20)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    second = measured_rows(unmeasured)
    run = unmeasured.make()
    after = measured_rows(unmeasured)
    assert set(first) < set(second) <= set(after) and len(set(after)) == len(after) == made[1].measured
    assert 0 < run.measured < made[1].measured - len(first)
    assert hashes(unmeasured) == hashes(made[0])


def test_a_torn_line_is_quarantined_and_its_pair_measured_again(made, copy):
    # Its lines become columns, and no other pair is measured again.
    path = interrupted(copy)
    os.truncate(path, path.stat().st_size - 30)
    run = copy.make("--forcerun", "benchmark", "--", DATASET)
    assert run.measured == 1 and copy.read(DATASET) == made[0].read(DATASET)
    quarantine = copy.read("results/datasets/gfx950/forward_bf16/quarantine.tsv").decode()
    assert quarantine.count("\n") == 2 and path.with_suffix(".1.csv").name in quarantine


def test_a_journal_that_lost_rows_is_noticed(copy):
    path = interrupted(copy)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-5]))
    (copy.folder / "results/datasets/gfx950/forward_bf16/pairs.parquet").unlink()
    copy.refuse("--forcerun", "dataset", "--until", "dataset")
    output = copy.read("logs/gfx950/forward_bf16/dataset.log").decode()
    assert path.name in output and "delete the receipt and run again" in output


def test_a_workflow_waits_until_another_one_has_used_the_device(unmeasured):
    locks = device_locks(["simulated-gfx950_mi355x"], unmeasured.folder / "locks")
    unmeasured.configure(lock={"folder": str(unmeasured.folder / "locks"), "timeout_s": 0.2})
    with hold_first_free(locks, timeout_s=1):
        unmeasured.refuse(DATASET, runs_jobs=True)
    (log, *_) = unmeasured.folder.glob("logs/*/*/benchmark/*.log")
    assert "simulated-gfx950_mi355x was busy" in log.read_text() and not measured_rows(unmeasured)


def test_one_gpu_is_the_limit_of_the_profile(made):
    (line,) = [line for line in made[1].output.splitlines() if line.startswith("Provided resources:")]
    assert 'gpu=Resource("gpu", 1)' in line


def test_published_models_say_that_they_are_simulated(made):
    workflow, _ = made
    index = model_files.read_index(workflow.folder / "results/models/gfx950")
    assert index.device_kind == "simulated"
    assert b"simulated" in workflow.read("results/reports/gfx950.html")
    made = json.loads(workflow.read("results/models/gfx950/provenance.json"))
    assert made["operations"]["forward_bf16"]["measurements"]["device_kind"] == "simulated"
    read = {
        "config/arch_specs.json",
        "config/hardware.yaml",
        "config/problems/small.csv",
        "config/rule_sets/small.yaml",
    }
    assert read <= set(made["files"])
    for name, digest in made["files"].items():
        assert hashlib.sha256(workflow.read(name)).hexdigest() == digest
    folder = workflow.folder / "results/models/gfx950/grouped_conv_forward_bf16_gfx950"
    for name in ("feature_spec.json", "train_manifest.json", "evaluation.json"):
        assert '"simulated"' in (folder / name).read_text()
    assert all("'simulated'" in row for row in measured_rows(workflow))


def test_the_name_of_the_folder_is_no_command(tmp_path):
    folder = tmp_path / "a b 'c' \"d\" $(touch pwned) `touch pwned`; touch pwned\n é☃"
    study = type(lay_out(folder))(tmp_path / "study")
    shutil.copytree(folder / "config", study.folder / "config")
    targets = "results/configs/gfx950/forward_bf16.parquet", "results/problems/forward_bf16.parquet"
    study.make("-s", str(folder / "Snakefile"), "--", *targets)
    assert not list(tmp_path.rglob("pwned"))
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, "study"}


def test_an_arch_that_cannot_be_built_says_why(copy):
    for arch in ("gfx999", "gfx908"):
        assert f"arch: {arch}: no GPU in benchmark.products stands for it" in copy.refuse(f"results/models/{arch}")
    assert "no kernel of the rule set is legal on gfx1201" in copy.refuse("results/models/gfx1201")
    output = copy.refuse("results/configs/gfx1201/forward_bf16.parquet", runs_jobs=True)
    assert "no kernel of the rule set is legal on gfx1201" in output
    assert "MissingOutputException" not in output, "the failing script's exit status was lost"


def test_what_the_configuration_names_is_checked_before_the_first_job(copy):
    before = {path: path.read_bytes() for path in (copy.folder / "results").rglob("*") if path.is_file()}
    configs = {"rule_set": "config/rule_sets/small.yaml", "chunks": 3, "include_flagged": ["slow"]}
    copy.configure(configs=configs, hardware="config/hardwre.yaml")
    copy.edit("config/problems/small.csv", "layer0,1,", "layer0,many,")
    lines = [line for line in copy.refuse().splitlines() if line.startswith("error: ")]
    starts = ("hardware: config/hardwre.yaml:", "config/problems/small.csv, line 2:", "configs.include_flagged:")
    assert all(line.startswith(f"error: {start}") for line, start in zip(lines, starts, strict=True)), lines
    assert {path: path.read_bytes() for path in before} == before


def test_a_brace_in_the_folders_name_is_refused_with_one_message(tmp_path):
    message = "a {folder}: Snakemake cannot work in a folder with a brace in its path; rename the folder"
    assert message in lay_out(tmp_path / "a {folder}").refuse("-n")
