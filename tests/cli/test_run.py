"""What ``tileseer run`` shows of the records of Snakemake."""

import json
import logging
import os
import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import snakemake_logger_plugin_tileseer as plugin
from tileseer.cli import main, run, run_summary, run_words, targets
from tileseer.core.errors import UserError
from tileseer.facts.config import check
from tileseer.learn import model_files

snakemake_common = pytest.importorskip("snakemake_interface_logger_plugins.common")
ROOT = Path(__file__).parents[2]
Event = snakemake_common.LogEvent


@pytest.fixture
def view(tmp_path, monkeypatch, capsys):
    """Make a view in a folder, which closes at the end."""
    monkeypatch.chdir(tmp_path)
    views = []

    def make(dryrun=False):
        views.append(plugin.LogHandler(SimpleNamespace(dryrun=dryrun), None))
        return views[0]

    yield make
    views[0].close()


def emit(view, message, level=logging.INFO, **more):
    record = logging.LogRecord("snakemake", level, "", 0, message, (), None)
    vars(record).update(more)
    view.emit(record)


def begin(view, number=3, log="model.log"):
    """A run of two jobs, of which one begins."""
    emit(view, "", event=Event.RUN_INFO, stats={"model": 1, "all": 1, "total": 2})
    emit(
        view, "", event=Event.JOB_INFO, jobid=number, rule_name="model", log=[log],
        wildcards={"arch": "gfx950", "operation": "forward_bf16", "chunk": "0"},
        reason="Missing output files: a, b; Code has changed",
    )  # fmt: skip


def test_without_a_terminal_a_job_is_a_line_and_silence_ends(view, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plugin, "SILENT_S", 0.05)
    shown = view()
    begin(shown)
    (tmp_path / "model.log").write_text("train: 20 of 80 trees, 10 a second, 6 s left\n")
    time.sleep(0.3)
    assert "at work: train: 20 of 80 trees, 10 a second, 6 s left\n" in capsys.readouterr().err
    (tmp_path / "model.log").write_text("model gfx950 forward_bf16: 239 rows\n")
    emit(shown, "", event=Event.JOB_FINISHED, job_id=3)
    shown.close()
    assert "[1/1] model gfx950 forward_bf16: 239 rows (0 s)" in capsys.readouterr().err.splitlines()


def test_the_log_of_an_earlier_run_is_not_what_a_job_says(view, tmp_path, capsys):
    (tmp_path / "model.log").write_text("model: 239 rows\n")
    os.utime(tmp_path / "model.log", (1e9, 1e9))
    shown = view()
    begin(shown)
    emit(shown, "", event=Event.JOB_FINISHED, job_id=3)
    assert "[1/1] model gfx950 forward_bf16 chunk 0 (0 s)" in capsys.readouterr().err


def test_a_failed_job_shows_the_end_of_its_log_and_is_named_last(view, tmp_path, capsys):
    shown = view()
    begin(shown)
    lines = [f"line {number}" for number in range(100)]
    (tmp_path / "model.log").write_text("\n".join([*lines, "error: \x1b[31mno rows"]))
    emit(shown, "", logging.ERROR, event=Event.JOB_ERROR, jobid=3, rule_msg=None)
    emit(shown, "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR, event=Event.ERROR)
    shown.close()
    printed = capsys.readouterr().err
    assert "model gfx950 forward_bf16 chunk 0 failed; the end of model.log:\n    line 81\n" in printed
    assert "    error: \\x1b[31mno rows\n" in printed and "WorkflowError" not in printed
    assert printed.splitlines()[-1].startswith("error: 1 job failed: model gfx950 forward_bf16 chunk 0; fix it and run")


def test_other_errors_are_shown(view, capsys):
    emit(view(), "MissingRuleException:\nNo rule to produce nonsense", logging.ERROR, event=Event.ERROR)
    assert capsys.readouterr().err.startswith("error: nothing makes nonsense; paths are relative")


def test_a_run_that_is_asked_to_end_says_that_it_waits(view, tmp_path, capsys):
    shown = view()
    begin(shown)
    for _ in range(2):
        emit(shown, "Will exit after finishing currently running jobs (scheduler).")
    shown.close()
    assert capsys.readouterr().err.splitlines() == [
        "asked to end: waiting for the jobs at work; Ctrl-C ends them too",
        "interrupted: 0 of 1 jobs are done; the same command goes on from there",
    ]


def test_ctrl_c_while_snakemake_loads_is_one_line(tmp_path):
    (tmp_path / "snakemake").mkdir()
    (tmp_path / "snakemake/__init__.py").touch()
    (tmp_path / "snakemake/cli.py").write_text("raise KeyboardInterrupt\n")
    command = [*run_words.SNAKEMAKE, "-n"]
    said = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(tmp_path)}
    )
    assert (said.returncode, said.stdout) == (130, "")
    assert said.stderr == "interrupted: no job was at work; the same command goes on from there\n"


def test_an_error_of_the_rules_is_one_line(view, capsys):
    text = """InputFunctionException in rule verdict_table in file "/a b/verdicts.smk", line 36:
Error:
  WorkflowError:
    benchmark.device is simulated
Wildcards:
  arch=gfx950
Traceback:
  File "/a b/inputs.smk", line 86, in verdicts_of_arch"""
    emit(view(), text, logging.ERROR, event=Event.ERROR)
    assert capsys.readouterr().err == "error: benchmark.device is simulated\n"


FRAME = 'Traceback (most recent call last):\n\n  File "/a/tileseer/lib/python3.11/site-packages/{}", line 8, in f\n\n'


def test_what_snakemake_does_not_understand_is_one_line_and_a_defect_of_ours_is_shown_as_it_is(view, capsys):
    text = FRAME.format("snakemake/common.py") + "ValueError: Invalid config definition: (Unparsable value: 'arch')\n"
    emit(view(), text, logging.ERROR, event=Event.ERROR)
    assert capsys.readouterr().err == "error: Invalid config definition: (Unparsable value: 'arch')\n"
    text = FRAME.format("snakemake/common.py") + FRAME.format("tileseer/cli/preflight.py") + "KeyError: 26"
    emit(view(), text, logging.ERROR, event=Event.ERROR)
    assert capsys.readouterr().err == f"{text}\n"


def test_values_that_are_set_of_rules_may_have_signs(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(run.os, "execve", lambda _, command, __: pytest.fail(f"began {command[-4:]}"))
    others = ["model:mem=4 GB", "dataset:mem_mb=4000 * attempt", "compile:runtime=2h"]
    words = ["--set-resources", *others, "benchmark:slurm_extra=--gres=gpu:1", "results/reports/gfx950.html"]
    with pytest.raises(pytest.fail.Exception, match=r"slurm_extra=--gres=gpu:1', '--', 'results/reports/gfx950.html"):
        main.main(["run", "-n", *words])


def test_what_is_made_may_stand_between_options():
    assert run_words.split_targets(["-n", "--", "results/a"]) == (["results/a"], ["-n"])
    words = ["--config", "model={}", "results/a", "-n"]
    assert run_words.split_targets(words) == (["results/a"], ["--config", "model={}", "-n"])
    words = ["--until", "model", "results/models/gfx950", "-n"]
    assert run_words.split_targets(words) == (["results/models/gfx950"], ["--until", "model", "-n"])
    words = [
        "report.html",
        "--jobs",
        "2",
        "results/reports/gfx950.html",
        "--keep-going",
        "results/a",
        "-n",
        "--until",
        "results/b",
    ]
    assert run_words.split_targets(words) == (
        ["report.html", "results/reports/gfx950.html", "results/a"],
        ["--jobs", "2", "--keep-going", "-n", "--until", "results/b"],
    )


def test_what_is_deleted_is_shown(view, capsys):
    emit(view(), "Deleting results/models/gfx950", logging.INFO)
    emit(view(), "Building DAG of jobs...", logging.INFO)
    assert capsys.readouterr().err == "Deleting results/models/gfx950\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--configfile", "latin.yaml"], "latin.yaml: is UTF-16 text"),
        (["--configfile=tab.yaml"], "tab.yaml: is not YAML: line 2 begins with a tab; indent with blanks"),
        (["--configfile", "none.yaml"], "'none.yaml': there is no such file; correct its path"),
        (["--config", "benchmark.seed=3"], "write --config benchmark='{seed: 3}'"),
        (["--config", "benchmark={seed: 3"], "--config: benchmark: the braces do not match; put quotes"),
        (["--cores", "0"], "--cores: '0': give a whole number from 1, or all"),
        (["--jobs", "-3"], "--jobs: '-3': give a whole number from 1, or unlimited"),
        (["--executor", "slurmm"], "'slurmm' is not installed; there are local"),
        (["--profile", "profiles/slrum"], "there is no such folder"),
        (["--directory", "runs/absent"], "there is no such folder; make one: tileseer init runs/absent"),
        (["--archs", "gfx950"], "is it --arch"),
        (["--arc", "gfx950"], "is it --arch"),
        (["--configfile"], "--configfile: what it takes is missing; write --configfile FILE"),
        (["--config", "tab.yaml"], "'tab.yaml' is no setting; write --configfile tab.yaml"),
        (["--configfile", "tab.yaml", "--configfile", "tab.yaml"], "write --configfile FILE FILE"),
        (["results/models/sm90"], "sm90 is no arch; do you mean sm_90"),
        (["results/models/gfx942", "--arch", "gfx950"], "name two archs; leave one out"),
        (["--configfile", "tab.yaml,none.yaml"], "there is no such file; separate files by blanks"),
        (["--config", "arch=gfx942", "arch=gfx950"], "--config: arch is given twice"),
        (["--config", "arch=gfx942", "--arch", "gfx950"], "arch=gfx942 and gfx950 are two archs; leave one out"),
        (["--config", "arch", "=", "gfx942"], "'arch' is no setting; write arch=VALUE without blanks around ="),
        (["--rerun-triggers", "none"], r"--rerun-triggers: invalid choice: 'none'"),
        (["--workflow-profile", "own", "-n"], "own/config.yaml: jobz: Snakemake has no such option; is it jobs"),
        (["--workflow-profile", "large"], "large/config.yaml: default-resources: mem_mb: '4 GB of RAM': give a number"),
        (["--workflow-profile", "empty"], "'empty': has no config.yaml; copy that of a profile"),
        (["--jobs", "-n"], "--jobs: what it takes is missing; write --jobs NUMBER"),
        (["--workflow-profile", "site"], "no controller of SLURM answers here; call it on a login node"),
        (["-n"], "no Snakefile is here; go to the folder of the run, or make one: tileseer init FOLDER"),
    ],
)
def test_a_mistake_in_the_words_of_a_run_is_one_line_before_snakemake_starts(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"\xff\xfearch: gfx950")
    for folder in ("site", "own", "empty", "large"):
        (tmp_path / folder).mkdir()
    (tmp_path / "own/config.yaml").write_text("jobz: 3\n")
    (tmp_path / "site/config.yaml").write_text("executor: slurm\n")
    (tmp_path / "large/config.yaml").write_text("default-resources: {mem_mb: 4 GB of RAM}\n")
    if "site" in words:
        monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "tab.yaml").write_text("arch: gfx950\n\tbad: tab\n")
    if words != ["-n"]:
        (tmp_path / "Snakefile").touch()
    assert main.main(["run", *words]) == 2
    assert re.search(f"^error: .*{message}.*\n$", capsys.readouterr().err)


def test_a_dry_run_lists_the_jobs_on_standard_output(view, tmp_path, capsys):
    shown = view(dryrun=True)
    begin(shown)
    shown.close()
    assert capsys.readouterr().out == "model gfx950 forward_bf16 chunk 0: Missing output files\n1 job would run\n"


def test_a_terminal_gets_a_table(view, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    shown = view()
    begin(shown)
    (tmp_path / "model.log").write_text("train: 20 of 80 trees, 10 a second\n")
    shown._live.refresh()
    shown.close()
    printed = capsys.readouterr().err
    assert "0 of 1 jobs done" in printed and "train: 20 of 80 trees, 10 a second" in printed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--benchmark-device hip", "for a setting write --config benchmark='{device: VALUE}'"),
        ("--workflow-profile profiles/slrum", "there is no such folder; is it profiles/slurm?"),
        (
            "--configfile config/hip.yaml --config arch=gfx943",
            "by neither benchmark.products nor replays; is it gfx942?",
        ),
        ("--profile slurm", "'slurm' is a profile of this folder; write --workflow-profile profiles/slurm"),
        ("--archs gfx950", "there is no such option; is it --arch?"),
        ("--confgfile x", "there is no such option; is it --configfile?"),
        ("modl", "there is no rule 'modl'; is it model?"),
        ("model", "model is a stage of each arch: write --until model"),
        ("sm_90", "sm_90 is an arch: write --arch sm_90"),
        ("--arch gfx943", "is it gfx942? If not, models of the times of the MIOpen that is installed: tileseer run"),
        (
            "--until compile --arch sm_90",
            "--until compile: models of sm_90 need no such stage; without it tileseer run -n",
        ),
        ("--until libraries -n", "--until libraries: models of gfx950 need no such stage"),
        ("--until compile --omit-from model -n", "both end a run, and one undoes the other; leave one of them out"),
        ("--config arch=gfx942,operations=[a] -n", "separate settings by blanks: --config arch=gfx942 operations=[a]"),
        ("--config benchmark={budget:1h} -n", "write budget: 1h, with a blank behind the colon"),
        ("results/models/sm90_cudnn", "sm90_cudnn is no arch; is it sm_90_cudnn?"),
        ("--arch sm_90 --configfile config/cudnn.yaml -n", "or call the arch sm_90_cudnn for cuDNN's"),
        ("--executor slurm -n", "write --workflow-profile profiles/slurm, or a copy"),
        ("--arch gfx940", "PRODUCT); is it gfx942 or gfx950? If not, models of the times of the MIOpen"),
        ("--arch gfx942 --configfile config/cuda.yaml -n", "take --configfile config/hip.yaml, which measures them"),
        ("--arch sm_90 --configfile config/cudnn.yaml -n", "toolchain none, which is not for CUTLASS's kernels; take"),
        ("--arch gfx942_mi300x", "of this GPU there are gfx942_miopen, gfx942"),
        ("--configfile smoke.yaml", "there is no such file; is it config/smoke.yaml?"),
        ("results/reports/gfx950", "nothing makes results/reports/gfx950 alone; is it results/reports/gfx950.html?"),
        ("results/models/gfx950/forward_bf16", "is it results/models/gfx950?"),
        ("results/model/gfx950", "nothing makes results/model/gfx950; of results/model; is it models?"),
        (r"results\models\gfx950", "write / between folders"),
        ("results/models/gfx950-smoke", "publishes as gfx950; add the --configfile of that trial"),
        ("--set-resources datasett:mem_mb=4096 -n", "there is no rule 'datasett'; is it dataset?"),
        ("--set-resources dataset.mem_mb=4096 -n", "'dataset.mem_mb=4096': write RULE:NAME=NUMBER"),
        ("--set-resources benchmarks:mem_mb=4096 -n", "there is no rule 'benchmarks'; is it benchmark?"),
        ("--set-threads modl=2 -n", "there is no rule 'modl'; is it model?"),
        ("--set-resources model:mem_mb=4GB -n", "model:mem_mb: '4GB': give a number of MB without its unit, such as"),
        ("--default-resources runtime=02:00:00 -n", "runtime: '02:00:00': give a number of minutes, such as 120, or"),
        ("--set-resources model:partition=cpu -n", "knows the resource partition; is it slurm_partition?"),
        ("--set-threads model=all -n", "--set-threads: model: 'all': give a whole number, such as 1"),
        ("--until report benchmrk", "there is no rule 'benchmrk'; is it benchmark?"),
    ],
)
def test_a_wrong_word_for_snakemake_is_one_line(words, says, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main.main(["run", *words.split()]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("file", ["hip", "cuda"])
def test_a_run_that_would_find_no_gpu_after_its_compiling_does_not_begin(file, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(targets, "missing_driver", lambda device: "there is no /dev/kfd")
    monkeypatch.setattr(run.os, "execve", lambda *_: pytest.fail("began"))
    assert main.main(["run", "--configfile", f"config/{file}.yaml"]) == 2
    said = capsys.readouterr().err
    assert f"benchmark.device is {file}, but this machine shows no GPU: there is no /dev/kfd" in said
    assert f"or take recorded times: tileseer run --arch {dict(cuda='sm_90', hip='gfx942_miopen')[file]}" in said
    assert main.main(["run", "--configfile", f"config/{file}.yaml", "--until", "benchmark"]) == 2
    with pytest.raises(pytest.fail.Exception, match="began"):
        main.main(["run", "--configfile", f"config/{file}.yaml", "--until", "libraries"])


def test_settings_that_count_for_nothing_are_told():
    told = targets.notes_on(check({"problems": {"validation": "own.csv"}}), ["sm_90"])
    assert told == [
        "note: problems.validation has no effect on sm_90: its recording has the kernels, problems and times"
    ]
    told = targets.notes_on(check({"model": {"learner": "nearest", "num_leaves": 7, "seed": 3}}), ["gfx950"])
    assert told == ["note: model.num_leaves has an effect on the learner trees; nearest may not read it"]
    assert targets.notes_on(check({"problems": {"validation": "own.csv"}}), ["sm_90", "gfx950"]) == []


def test_models_that_a_run_takes_away_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("results/models/sm_90")
    folder.mkdir(parents=True)
    entries = {name: {"folder": f"grouped_conv_{name}"} for name in ("forward_bf16", "bwd_data_bf16")}
    about = {
        "format": 7,
        "tileseer": model_files.READERS,
        "arch": "sm_90",
        "device": "sm_90_h200",
        "device_kind": "recorded",
    }
    (folder / "index.json").write_text(json.dumps({**about, "operations": entries, "sha256": {}}))
    (told,) = [line for line in targets.notes_on(check({"operations": ["forward_bf16"]}), ["sm_90"]) if "loses" in line]
    assert told == f"note: {folder} has bwd_data_bf16 too, and loses it (operations); publish.name keeps it"
    elsewhere = targets.notes_on(check({"operations": ["forward_bf16"], "publish": {"name": "x"}}), ["sm_90"])
    assert not any("loses" in line for line in elsewhere)


def test_folders_that_cannot_be_written_are_told_before_jobs_are_planned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(run_words.os, "access", lambda folder, _: str(folder) != "results")
    assert main.main(["run"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/results: cannot be written; run in a folder of your")


def test_a_file_that_takes_a_trial_back_is_told(monkeypatch):
    monkeypatch.chdir(ROOT)
    files = ["config/smoke.yaml", "config/cudnn.yaml"]
    (told,) = run_words.taken_back(["--configfile", *files])
    assert told.startswith("note: config/cudnn.yaml takes back operations, configs.chunks, problems.design,")
    assert told.endswith("of the trial config/smoke.yaml; to have the trial put it last")
    assert not [*run_words.taken_back(["--configfile", *reversed(files), "-n"])]


def test_the_workflow_checks_the_arch_of_the_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    told = []
    monkeypatch.setattr(run.os, "execve", lambda _, __, environment: told.append(environment.get("TILESEER_ARCH")))
    for words in (
        ["--arch", "gfx942"],
        ["results/models/sm_90"],
        [],
        ["results/models/sm_90", "results/models/gfx942"],
    ):
        main.main(["run", *words])
    assert told == ["gfx942", "sm_90", None, None]


def test_numbers_in_braces_of_the_command_line_are_numbers():
    # As Snakemake reads --config model='{seed: 3}'.
    braces = {"model": {"seed": "3"}, "ck": {"api": "2025.11"}, "benchmark": {"budget": "20m"}}
    settings = check(braces)
    assert (settings.model.seed, settings.ck.api, settings.benchmark.budget) == (3, "2025.11", "20m")
    assert braces["model"]["seed"] == "3"
    with pytest.raises(UserError, match=r"model\.seed: .*'three'"):
        check({"model": {"seed": "three"}})
    with pytest.raises(UserError, match=r"unknown field, of value 31; model has it: write model: {num_leaves: 31}"):
        check({"num_leaves": 31})


def test_a_run_until_a_stage_ends_without_figures_of_models_on_the_disk():
    said = [*run_summary.lines_of("gfx950", "gfx950-smoke", "tileseer run", True, {"dataset"})]
    assert said == [
        "made:     results, for gfx950, as far as the call lets (dataset)",
        "models:   not part of this run; tileseer run",
    ]
