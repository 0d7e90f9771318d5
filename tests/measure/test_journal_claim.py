"""One process at a time writes a journal, on this machine and on others that share the folder."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_journal import measurement, rows

from tileseer.core.errors import UserError
from tileseer.measure import journal
from tileseer.measure.claim import Claim
from tileseer.measure.journal import Journal

HOLD = """
import sys, time
from pathlib import Path
from tileseer.measure.claim import Claim
claim = Claim(Path(sys.argv[1]), 5, float(sys.argv[2]))
print("held", flush=True)
sys.stdin.readline()
claim.release()
"""
SLOW = """
import functools, sys
from pathlib import Path
from tileseer.measure import claim, journal
from tileseer.core.errors import reports_user_errors

@reports_user_errors
def main():
    journal.Claim = functools.partial(claim.Claim, lease_s=float(sys.argv[2]))
    with journal.Journal(Path(sys.argv[1])) as book:
        print("held", flush=True)
        sys.stdin.readline()
        book.append(journal.SCHEMA.empty_table())

raise SystemExit(main())
"""
LEASE_S = 1.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journals" / "0.csv"


@pytest.fixture
def writer(path):
    """Another process that writes the journal until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(LEASE_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def owner_file(path):
    return path.with_name(f".{path.name}.writer")


def test_a_second_writer_is_told_who_writes(path):
    with Journal(path), pytest.raises(UserError, match=rf"0\.csv was busy .* process {os.getpid()} of .*timeout_s"):
        Journal(path)
    with Journal(path) as book:
        book.append(rows(measurement()))
    assert sorted(path.parent.iterdir()) == [path]


def test_who_waits_goes_on_when_the_first_is_done(path, writer, capfd):
    with pytest.raises(UserError, match=rf"busy for \d+ s: written by process {writer.pid} of"):
        Claim(path, 0.3, LEASE_S)
    assert f"waiting for {path} since 0 s: written by process {writer.pid} of" in capfd.readouterr().err
    writer.communicate("\n")
    Claim(path, 0, LEASE_S).release()
    assert "took over" not in capfd.readouterr().err


def test_a_writer_that_lives_keeps_its_claim_however_long_it_takes(path, writer):
    with pytest.raises(UserError, match="was busy"):
        Claim(path, 2 * LEASE_S, LEASE_S)


def test_the_claim_of_a_killed_process_is_taken_over_at_once(path, writer, capfd):
    writer.kill()
    writer.wait()
    claim = Claim(path, 0.5, 3600.0)
    claim.check()
    claim.release()
    assert f"took over {path}: written by process {writer.pid} of" in capfd.readouterr().err


def test_the_claim_of_another_machine_is_taken_over_when_nothing_is_heard_of_it(path, writer, capfd):
    writer.kill()
    writer.wait()
    told = owner_file(path).read_text()
    owner_file(path).write_text(re.sub("host=.*", "host=node7", told))
    with pytest.raises(UserError, match=f"process {writer.pid} of node7"):
        Claim(path, LEASE_S / 3, LEASE_S)
    Claim(path, 10, LEASE_S).release()
    assert f"took over {path}: written by process {writer.pid} of node7 and is gone" in capfd.readouterr().err


def test_a_process_that_was_killed_before_it_said_who_it_is_stops_nobody(path):
    path.parent.mkdir()
    owner_file(path).touch()
    Claim(path, 10, LEASE_S).release()
    assert not owner_file(path).exists()


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_a_claim_that_names_nobody_is_refused_with_the_fix(path, make):
    path.parent.mkdir(exist_ok=True)
    make(owner_file(path))
    with pytest.raises(UserError, match=rf"left no name \(delete {re.escape(str(owner_file(path)))} if it has ended\)"):
        Claim(path, 0.1)
    owner_file(path).unlink()
    Claim(path, 1).release()


def test_who_was_taken_for_dead_writes_nothing_any_more(path):
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(path), str(LEASE_S)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert slow.stdout.readline() == "held\n"
    slow.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    claim = Claim(path, 10, LEASE_S)
    assert time.monotonic() - start >= LEASE_S
    slow.send_signal(signal.SIGCONT)
    said, _ = slow.communicate("\n", timeout=20)
    assert f"error: {path}: written by process {os.getpid()} of" in said and "Traceback" not in said
    assert journal.read_journal(path)[0].num_rows == 0
    # It left, and the one that took over keeps its claim.
    claim.check()
    claim.release()


def test_who_was_taken_for_dead_removes_no_lines_of_the_next_one(path, monkeypatch):
    """It stalls between its look at the claim and the end of the lines, and the next one goes on with them."""
    rename, others = os.rename, []

    def stalled(*names):
        if not others:
            first._claim.release()
            others.append(Journal(path))
            others[0].append(rows(measurement(1)))
        rename(*names)

    with Journal(path) as first:
        first.append(rows(measurement(0)))
        monkeypatch.setattr(os, "rename", stalled)
        with pytest.raises(UserError, match="since this process gave no sign"):
            first.compress()
    with others[0] as second:
        second.append(rows(measurement(2)))
        assert journal.read_journal(path)[0].num_rows == 3
        second.compress()
    assert journal.read_journal(path)[0] == rows(*(measurement(number) for number in range(3)))
    assert [file.name for file in sorted(path.parent.iterdir())] == [".0.1.parquet.sha256", "0.1.parquet"]


def test_a_folder_without_room_or_right_is_told_with_its_name(path):
    path.parent.mkdir()
    owner_file(path).mkdir()
    with pytest.raises(OSError) as told:
        Journal(path)
    assert path.name in str(told.value)
