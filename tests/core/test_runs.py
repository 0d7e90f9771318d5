"""One run at a time in a folder, and what a killed one leaves."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
from lock_attacks import LOSSES

from tileseer.core import runs
from tileseer.core.errors import UserError

RUN = """
import sys, time
from pathlib import Path
from tileseer.core import runs
held = runs.begin_run(Path(sys.argv[1]))
print("begun", flush=True)
time.sleep(60)
"""


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "a state"
    folder.mkdir(parents=True)
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


def test_a_second_run_is_refused_until_the_first_is_killed(state, start):
    run = start(sys.executable, "-c", RUN, str(state))
    with pytest.raises(UserError, match=rf"process {run.pid} .* runs in this folder; wait for its end"):
        runs.begin_run(state)
    run.send_signal(signal.SIGKILL)
    run.wait()
    runs.begin_run(state).close()
    runs.begin_run(state).close()


@pytest.mark.parametrize("lose", ["lock removed", "lock renamed", "lock replaced"])
def test_a_second_run_is_refused_although_the_lock_of_the_first_was_lost(state, start, lose):
    run = start(sys.executable, "-c", RUN, str(state))
    for _ in range(2):
        LOSSES[lose](state / runs.RUN)
        with pytest.raises(UserError, match="a process runs in this folder; wait for its end"):
            runs.begin_run(state)
    run.kill()
    run.wait()
    runs.begin_run(state).close()


def test_who_follows_a_killed_run_waits_for_its_jobs(state, start, capfd):
    # The shell ends and leaves a child, as when the shell is killed.
    job = start("bash", "-c", runs.job_prefix(state.relative_to(state)) + "(sleep 1.5) & echo begun")
    before = time.monotonic()
    runs.begin_run(state).close()
    assert time.monotonic() - before > 0.5
    assert "waiting for the jobs of a run that was killed" in capfd.readouterr().err
    job.wait()


def test_nothing_is_said_when_nothing_is_left(state, capfd):
    runs.begin_run(state).close()
    assert capfd.readouterr() == ("", "")


def test_a_job_runs_where_there_are_no_locks(state, tmp_path):
    (tmp_path / "flock").write_text("#!/bin/sh\necho 'flock: 9: Function not implemented' >&2\nexit 71\n")
    (tmp_path / "flock").chmod(0o755)
    command = (
        f"export PATH={shlex.quote(str(tmp_path))}:$PATH; set -e; {runs.job_prefix(state.relative_to(state))} echo ran"
    )
    done = subprocess.run(["bash", "-c", command], cwd=state, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)


def test_files_of_the_future_get_the_present_time(state, tmp_path):
    path = tmp_path / "results/file"
    path.parent.mkdir()
    path.write_text("")
    os.utime(path, (time.time() + 1000,) * 2)
    runs.begin_run(state, path.parent).close()
    assert path.stat().st_mtime <= time.time()


SQUEUE = """#!/bin/sh
echo x >> {count}
[ $(wc -l < {count}) -le 2 ] && echo "7|{folder}"
echo "8|/elsewhere"
"""


@pytest.fixture
def squeue(state, tmp_path, monkeypatch):
    def put(text):
        (tmp_path / "squeue").write_text(text)
        (tmp_path / "squeue").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(runs, "SLURM_POLL_S", 0.05)
        (tmp_path / runs.SLURM_LOGS).mkdir(parents=True)

    return put


def test_the_queued_jobs_of_a_killed_run_are_waited_for(state, tmp_path, squeue, capfd):
    squeue(SQUEUE.format(count=shlex.quote(str(tmp_path / "count")), folder=tmp_path))
    runs.begin_run(state).close()
    assert "waiting for the jobs of a run that was killed: SLURM jobs 7; or scancel 7" in capfd.readouterr().err


def test_a_queue_that_does_not_answer_is_said(state, squeue, capfd):
    squeue("#!/bin/sh\necho no controller >&2\nexit 1\n")
    with contextlib.closing(runs.begin_run(state)):
        assert "squeue failed, so queued jobs cannot be listed: no controller" in capfd.readouterr().err
