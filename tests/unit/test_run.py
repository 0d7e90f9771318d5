"""What ``tileseer run`` shows of the events of a run, and what the history of publications says."""

import json

import pytest

from tileseer.cli import main, run_view
from tileseer.core import events
from tileseer.publish import history

LOG = "logs/gfx950/forward_bf16/model.log"


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Tell events as the jobs of a run do; the path of the file."""
    path = tmp_path / "events"
    monkeypatch.setenv(events.EVENTS, str(path))
    monkeypatch.setenv(events.LOG, LOG)
    return path


def begin():
    events.tell("run", arch="gfx950")
    events.tell("plan", jobs=22, told="")
    events.tell("begin", stage="model", of="gfx950 forward_bf16", does="Train the model.")


def test_without_a_terminal_each_job_is_a_line_and_silence_ends(told, capsys, monkeypatch):
    begin()
    monkeypatch.setattr(run_view, "SILENT_S", 0)
    view = run_view.View(told)
    events.tell("progress", now="train", done=20, total=80, unit="trees", rate=10.0, left_s=6.0)
    view.look()
    assert capsys.readouterr().err == "at work: model gfx950 forward_bf16 train 20/80 trees 10 a second 6 s\n"
    events.tell("computed", told="239 rows")
    monkeypatch.setattr(run_view, "SILENT_S", 10)
    view.look()
    assert capsys.readouterr().err == "[1/22] model gfx950 forward_bf16: 239 rows (0 s)\n"
    assert view.planned == 22 and view.count("computed") == 1 and not view.unfinished()


def test_what_compiling_will_take_is_said_before_the_first_job(told, capsys):
    view = run_view.View(told)
    events.tell("run", arch="gfx950")
    events.tell("plan", jobs=22, told="compile: at most 728 kernels\n")
    view.look()
    assert capsys.readouterr().err == "compile: at most 728 kernels\n"


def test_a_terminal_gets_a_table_that_goes(told, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    begin()
    events.tell("progress", now="train", done=20, total=80, unit="trees", rate=10.0, left_s=6.0)
    with run_view.View(told) as view:
        view.look()
        view._live.refresh()
    shown = capsys.readouterr().err
    assert "0 of 22 jobs done" in shown and "20/80 trees" in shown and "10 a second" in shown
    assert "gfx950 forward_bf16" in shown


def test_a_run_that_has_not_begun_and_half_a_line_are_left(told):
    view = run_view.View(told)
    view.look()
    assert view.planned is None and not view.unfinished()
    begin()
    with told.open("a") as stream:
        stream.write('{"state": "comp')
    view.look()
    assert [job.name for job in view.unfinished()] == ["model gfx950 forward_bf16"]
    with told.open("a") as stream:
        stream.write(f'uted", "job": "{LOG}", "told": "all"}}\n')
    view.look()
    assert view.arch == "gfx950" and not view.unfinished()


def published(mean, config="c" * 64, **more):
    figures = history.Figures(
        n_problems=10, mean=mean, median=99.0, p10=90.0, without_model=80.0, best_possible=97.0, **more
    )
    return history.Published(
        time="2026-01-02T03:04:05Z", arch="gfx950", device_kind="simulated", commit="abcdef0123456", changed_files=0,
        config_sha256=config, data_sha256={"forward_bf16": "d" * 64}, operations={"forward_bf16": figures},
    )  # fmt: skip


def test_history_is_a_table_with_what_changed(tmp_path, capsys):
    lines = [published(mean).model_dump_json() for mean in (94.0, 95.5)]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    assert main.main(["history", "--results", str(tmp_path), "--markdown"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[1].startswith("| --- |") and "| forward_bf16 | 95.50 | +1.50 | 99.00 |" in table[3]
    assert "| abcdef012 |" in table[2] and "| 94.00 | - |" in table[2]
    main.main(["history", "gfx950", "--results", str(tmp_path), "--json"])
    assert len(json.loads(capsys.readouterr().out)["published"]) == 2


def test_the_end_of_a_run_says_what_changed_since_the_publication_before():
    first, second = published(94.0), published(95.5, config="e" * 64)
    said = history.since([first, second], second.operations)
    assert said == "2026-01-02, commit abcdef012: forward_bf16 94.00 -> 95.50 %; changed: config"
    assert history.since([second], second.operations) is None
    # Restored models are not published again, so the last publication may be of others.
    assert history.since([second, first], second.operations) is None


def test_a_damaged_line_of_the_history_is_named(tmp_path, capsys):
    (tmp_path / "history.jsonl").write_text("{\n")
    assert main.main(["history", "--results", str(tmp_path)]) == 2
    assert "history.jsonl, line 1: this is no JSON" in capsys.readouterr().err
