import contextlib
import io
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tileseer.core import lock
from tileseer.core.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from tileseer.core import lock
with lock.any_of(["toy"], Path(sys.argv[1]), 60) as (_, waited):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(folder, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


@contextlib.contextmanager
def held(folder):
    """Another process holds the lock meanwhile."""
    process = hold(folder, 30)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_free_lock_is_taken_at_once_and_left_clean(tmp_path):
    for _ in range(2):
        with lock.any_of(["toy"], tmp_path / "locks", 1) as (_, waited):
            assert waited < 1
            file = tmp_path / "locks/tileseer-toy.lock"
            assert lock.holder(file).startswith(f"process {os.getpid()} of user {os.getuid()} since")
        assert lock.holder(file) == "" and list(file.parent.iterdir()) == [file]


def test_two_devices_do_not_exclude_each_other(tmp_path):
    with lock.any_of(["one"], tmp_path, 1), lock.any_of(["other"], tmp_path, 1):
        pass


def test_who_waits_is_told_who_holds_and_gives_up_in_time(tmp_path, capfd):
    with held(tmp_path) as process:
        told = rf"toy was busy for \d+ s: held by process {process.pid}"
        with pytest.raises(UserError, match=told), lock.any_of(["toy"], tmp_path, 0.5):
            pass
        assert f"waiting for toy since 0 s: held by process {process.pid}" in capfd.readouterr().err


def test_the_lock_of_a_killed_owner_is_taken_over_with_a_message(tmp_path, capfd):
    process = hold(tmp_path, 30)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with lock.any_of(["toy"], tmp_path, 5):
        pass
    assert f"took over toy: held by process {process.pid}" in capfd.readouterr().err


def test_who_waits_goes_on_when_the_owner_is_done(tmp_path):
    process = hold(tmp_path, 1)
    start = time.monotonic()
    with lock.any_of(["toy"], tmp_path, 30) as (_, waited):
        assert 0.2 < waited <= time.monotonic() - start
    process.wait()


def test_of_several_devices_the_first_free_one_is_held(tmp_path):
    with lock.any_of(["gpu-1"], tmp_path, 1), lock.any_of(["gpu-1", "gpu-2"], tmp_path, 1) as (device, _):
        assert device == "gpu-2"
        with pytest.raises(UserError, match="gpu-1, gpu-2 was busy"), lock.any_of(["gpu-1", "gpu-2"], tmp_path, 0.2):
            pass
    with lock.any_of(["gpu-1", "gpu-2"], tmp_path, 1) as (device, _):
        assert device == "gpu-1"


ROOT, NOBODY = 0, 65534
needs_root = pytest.mark.skipif(os.getuid() != ROOT, reason="only root can become another user")


@pytest.fixture
def open_folder():
    """A folder that every user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="tileseer-lock-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def hold_as(user, folder, told, seconds):
    """Become a user with a narrow umask, hold the lock, and tell what was printed while it was not free."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.umask(0o077)
    sys.stderr = printed = io.StringIO()
    try:
        with lock.any_of(["toy"], folder, 60):
            told.put(printed.getvalue())
            time.sleep(seconds)
    except UserError as error:
        told.put(str(error))


def start_as(user, folder, seconds=0.0):
    # Forked: another user need not be able to read this environment.
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    process = context.Process(target=hold_as, args=(user, folder, told, seconds))
    process.start()
    return process, told


@needs_root
@pytest.mark.parametrize(("owner", "other"), [(ROOT, NOBODY), (NOBODY, ROOT)])
def test_two_users_share_a_device(open_folder, owner, other):
    folder = open_folder / "locks"
    first, told = start_as(owner, folder, 60)
    assert told.get(timeout=20) == ""
    second, heard = start_as(other, folder)
    time.sleep(0.5)
    first.kill()
    first.join()
    said = heard.get(timeout=20)
    second.join()
    holder = rf"held by process {first.pid} of user {owner} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(rf"^waiting for toy since 0 s: {holder}$", said, re.M)
    assert re.search(rf"^took over toy: {holder} and is gone$", said, re.M)
    assert second.exitcode == 0


@needs_root
def test_a_lock_folder_of_one_user_is_refused_with_the_fix(open_folder):
    folder = open_folder / "locks"
    folder.mkdir(mode=0o755)
    process, told = start_as(NOBODY, folder)
    said = told.get(timeout=20)
    process.join()
    assert str(folder) in said and "user 65534" in said and "lock.folder" in said


def replace(path):
    path.with_name("other").touch()
    path.with_name("other").rename(path)


@pytest.mark.parametrize("gone", [Path.unlink, replace])
def test_a_removed_or_replaced_lock_file_frees_nothing(tmp_path, gone):
    with held(tmp_path):
        gone(tmp_path / "tileseer-toy.lock")
        with pytest.raises(UserError, match="toy was busy"), lock.any_of(["toy"], tmp_path, 0.5):
            pass
    with lock.any_of(["toy"], tmp_path, 5):
        pass


PLANTED = {
    "a FIFO": os.mkfifo,
    "a link": lambda path: path.symlink_to(path.with_name("victim")),
    "a dangling link": lambda path: path.symlink_to(path.with_name("nothing")),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a second name": lambda path: path.hardlink_to(path.with_name("victim")),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_is_no_plain_file_is_told_and_not_touched(tmp_path, plant):
    victim, path = tmp_path / "victim", tmp_path / "tileseer-toy.lock"
    victim.write_text("precious")
    victim.chmod(0o600)
    plant(path)
    with pytest.raises(OSError) as told, lock.any_of(["toy"], tmp_path, 0.5):
        pass
    assert told.value.filename == str(path)
    assert victim.read_text() == "precious" and victim.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "nothing").exists()


NOTES = {
    "nested JSON": "[" * 100_000,
    "escape codes": '{"pid": "\x1b[2J\x1b]0;pwned\x07", "user": 0, "since": "\x1b[31m"}',
    "a form of its own with an escape code": "process 1 of user 0 since 2026-01-01 00:00:00\x1b[2J",
    "much": "x" * 10_000_000,
    "bytes": "\x00\xff",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_foreign_note_is_not_shown(tmp_path, capfd, note):
    with held(tmp_path):
        (tmp_path / "tileseer-toy.lock").write_text(note, encoding="latin1")
        with pytest.raises(UserError, match="held by a process that left no note"), lock.any_of(["toy"], tmp_path, 0.2):
            pass
    with lock.any_of(["toy"], tmp_path, 5):
        pass
    said = capfd.readouterr().err
    assert said.replace("\n", "").isprintable() and "took over" not in said


@needs_root
def test_the_dead_note_of_another_user_in_a_sticky_folder_stops_nobody(open_folder):
    folder = open_folder / "locks"
    first, told = start_as(ROOT, folder, 60)
    assert told.get(timeout=20) == ""
    assert folder.stat().st_mode & 0o7777 == 0o1777
    first.kill()
    first.join()
    second, heard = start_as(NOBODY, folder)
    assert f"took over toy: held by process {first.pid} of user {ROOT}" in heard.get(timeout=20)
    second.join()
    assert second.exitcode == 0
