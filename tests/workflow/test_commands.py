"""The calls that a user types, on a workflow that has run."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from help_examples import words
from small_workflow import ROOT, tileseer
from stages_by_hand import main_of

SCRIPTS = sorted(path.stem for path in (ROOT / "workflow/scripts").glob("*.py"))


def test_snakemake_report_holds_our_report(copy):
    copy.make("--report", "out.zip")
    assert (copy.folder / "out.zip").stat().st_size > 10_000


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_explains_itself(script, capsys):
    with pytest.raises(SystemExit) as ended:
        main_of(script)(["--help"])
    assert ended.value.code == 0 and "usage:" in capsys.readouterr().out


def test_run_shows_a_line_per_job_and_ends_with_what_is_on_disk(copy):
    run = tileseer(copy, "run", "results/models/gfx950", "-R", "dataset")
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stderr.splitlines() if line.startswith("[")]
    assert re.match(r"\[1/6\] dataset gfx950 forward_bf16: [0-9,]+ pairs have a time", lines[0]) and len(lines) == 6
    said = run.stdout.splitlines()
    heads = [line.split(":")[0] for line in said if not line.startswith(" ")]
    assert heads == ["models", "report", "picks", "verdict", "next"]
    assert said[0].startswith("models:   results/models/gfx950 (simulated times of gfx950_mi355x)")
    assert "in the simulation" in run.stdout and "Simulated: a formula made these times" in said[-3]
    assert said[-1].strip() == "tileseer run results/models/gfx950 --configfile config/hip.yaml"
    again = tileseer(copy, *words("tileseer run"))
    assert again.returncode == 0 and "Nothing to be done" in again.stderr


def test_a_publication_that_is_killed_leaves_the_models(copy):
    models = copy.folder / "results/models/gfx950"
    before = {path: path.read_bytes() for path in models.rglob("[!.]*") if path.is_file()}
    script = copy.folder / "workflow/scripts/publish.py"
    sound = script.read_text()
    script.write_text(
        sound.replace("    index = ", "    __import__('os').kill(__import__('os').getpid(), 9)\n    index = ")
    )
    copy.refuse("results/models/gfx950", runs_jobs=True)
    assert {path: path.read_bytes() for path in models.rglob("[!.]*") if path.is_file()} == before
    script.write_text(sound)
    assert not list(models.parent.glob(".*"))
    # What is left of a Snakemake that was killed while it published.
    shutil.copytree(models, copy.folder / ".snakemake/backups/results/models/gfx950")
    copy.make("-R", "publish", "--", "results/models/gfx950")


def test_damaged_models_and_reports_are_made_again(copy):
    index, report = (copy.folder / "results" / name for name in ("models/gfx950/index.json", "reports/gfx950.html"))
    whole = index.read_bytes(), report.read_bytes()
    index.unlink()
    report.write_bytes(whole[1][:1000])
    dry = tileseer(copy, "run", "-n", "-R", "report")
    index.write_bytes(whole[0])
    report.write_bytes(whole[1])
    assert "note: results/models/gfx950: has no models (no index.json); it is made again\n" in dry.stderr
    assert "note: results/reports/gfx950.html: is cut short; it is made again\n" in dry.stderr
    assert "publish gfx950: Forced execution\n" in dry.stdout and "report gfx950: Forced" in dry.stdout


def test_run_shows_the_end_of_a_failed_job_and_passes_flags_on(copy):
    (copy.folder / "results/datasets/gfx950/forward_bf16/pairs.parquet").write_bytes(b"damaged")
    dry = tileseer(copy, *words("tileseer run -n"))
    assert dry.returncode == 0 and "\nreport gfx950: Input files updated by another job\n" in dry.stdout
    run = tileseer(copy, "run", "results/models/gfx950", "-R", "model")
    assert run.returncode == 1
    assert "model gfx950 forward_bf16 failed; the end of logs/gfx950/forward_bf16/model.log:" in run.stderr
    assert "pairs.parquet" in run.stderr
    assert run.stderr.splitlines()[-1].startswith("error: 1 job failed: model gfx950 forward_bf16")


def test_a_mistake_in_the_configuration_is_the_last_line(copy):
    copy.configure(arch="xx")
    for command in (["tileseer", "run"], ["snakemake", "--cores", "1"]):
        run = subprocess.run(command, cwd=copy.folder, env=copy.environment(), capture_output=True, text=True)
        assert run.returncode in (1, 2)
        assert re.match(r"error: config(/config\.yaml)?: arch:", run.stderr.splitlines()[-1]), run.stderr
