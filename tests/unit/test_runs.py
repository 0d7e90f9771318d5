"""Runs and jobs that are alive, and what the dead leave."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tileseer.core import events, runs

RUN = """
import sys, time
from pathlib import Path
from tileseer.core import runs
held = runs.begin(Path(sys.argv[1]))
print("begun", flush=True)
time.sleep(60)
"""


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "a state"
    (folder / "locks").mkdir(parents=True)
    return folder


@pytest.fixture
def start(state):
    started = []

    def run(*command):
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=state))
        assert started[-1].stdout.readline() == "begun\n"
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def left(state):
    return list((state / "locks").iterdir())


def test_the_locks_of_a_killed_run_are_removed_with_a_message(state, start, capfd):
    run = start(sys.executable, "-c", RUN, str(state))
    (state / "locks/0.input.lock").write_text("input")
    run.send_signal(signal.SIGKILL)
    run.wait()
    runs.begin(state).close()
    assert not left(state)
    assert "removed the 1 locks of a run that was killed" in capfd.readouterr().err


def test_the_locks_of_a_living_run_stay(state, start, capfd):
    start(sys.executable, "-c", RUN, str(state))
    (state / "locks/0.input.lock").write_text("input")
    runs.begin(state).close()
    assert left(state)
    assert not capfd.readouterr().err


def test_several_runs_go_on_side_by_side(state):
    with runs.begin(state), runs.begin(state):
        (state / "locks/0.input.lock").write_text("input")
        with runs.begin(state):
            assert left(state)


def test_who_follows_a_killed_run_waits_for_its_jobs(state, start, capfd):
    (state / "locks/0.input.lock").write_text("input")
    # The shell ends and leaves a child, as when the shell is killed.
    job = start("bash", "-c", runs.job_prefix(state.relative_to(state)) + "(sleep 1.5) & echo begun")
    before = time.monotonic()
    runs.begin(state).close()
    assert time.monotonic() - before > 0.5
    assert not left(state)
    assert "waiting for the jobs of a run that was killed: processes" in capfd.readouterr().err
    job.wait()


def test_two_runs_in_one_folder_count_their_own_jobs(state):
    """A job of a cluster enters as a run of its own, and tells the run that submitted it."""
    code = (
        "import sys; from pathlib import Path; from tileseer.core import events, runs; "
        "run = runs.enter(Path(sys.argv[1]), {}, 'gfx950'); events.tell('computed', told=''); "
        "print('begun', flush=True); sys.stdin.read(); print(run.summary())"
    )
    with contextlib.ExitStack() as open_runs:
        entered = []
        for inherited in ({}, {}, {events.EVENTS: str(state / events.FILE.format("7"))}):
            environment = {name: value for name, value in os.environ.items() if name != events.EVENTS} | inherited
            run = subprocess.Popen(
                [sys.executable, "-c", code, str(state)], cwd=state, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            entered.append(open_runs.enter_context(run))
            assert run.stdout.readline() == "begun\n"
        counts = [run.communicate()[0] for run in entered]
    assert counts == ["stages: 1 computed, 0 restored unchanged\n"] * 3
    assert len(list(state.glob("tileseer.events.*"))) == 3
    runs.begin(state).close()
    assert not list(state.glob("tileseer.events.*"))


def test_nothing_is_said_when_nothing_is_left(state, capfd):
    runs.begin(state).close()
    assert not capfd.readouterr().err


def test_the_prefix_is_shell_that_fails_when_the_lock_cannot_be_made(tmp_path):
    run = subprocess.run(
        ["bash", "-euc", runs.job_prefix(tmp_path.relative_to(tmp_path) / "absent") + "echo " + shlex.quote("ran")],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode and "ran" not in run.stdout


def fake_squeue(tmp_path, monkeypatch, text):
    """A cluster whose queue is what a shell script says; the folder has submitted jobs before."""
    (tmp_path / "logs/slurm").mkdir(parents=True)
    program = tmp_path / "bin/squeue"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(runs, "SLURM_POLL_S", 0.05)


def test_the_queued_jobs_of_a_killed_run_are_waited_for(state, tmp_path, monkeypatch, capfd):
    # Another folder's job 9 never ends; ours, 7, has ended when it is asked for the second time.
    ours = f"[ -e asked ] || echo '7|{tmp_path}'; : > asked; echo '9|/elsewhere'"
    fake_squeue(tmp_path, monkeypatch, f"cd {shlex.quote(str(tmp_path))}; {ours}")
    (state / "locks/0.input.lock").write_text("input")
    runs.begin(state).close()
    assert not left(state)
    said = capfd.readouterr().err
    assert "waiting for the jobs of a run that was killed: SLURM jobs 7; or scancel 7\n" in said


def test_a_queue_that_does_not_answer_is_said(state, tmp_path, monkeypatch, capfd):
    fake_squeue(tmp_path, monkeypatch, "echo 'no controller' >&2; exit 1")
    (state / "locks/0.input.lock").write_text("input")
    runs.begin(state).close()
    assert "squeue failed, so queued jobs are not known: no controller" in capfd.readouterr().err
