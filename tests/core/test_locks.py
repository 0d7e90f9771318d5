import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import filelock
import lock_attacks
import pytest
from lock_attacks import LOSSES, NOBODY, PLANTED, ROOT, start_as

from tileseer.core import locks
from tileseer.core.errors import UserError
from tileseer.core.locks import device_locks, hold_first_free, holder_of, try_lock

HOLD = """
import sys, time
from pathlib import Path
from tileseer.core.locks import hold_first_free
with hold_first_free({"toy": Path(sys.argv[1])}, timeout_s=60):
    print("held", flush=True)
    time.sleep(60)
"""
HOST = re.escape(os.uname().nodename)


@contextlib.contextmanager
def held_elsewhere(path, **environment):
    """Another process holds the lock meanwhile; it is killed at the end."""
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def hold(path, timeout_s=0.3):
    return hold_first_free({"toy": path}, timeout_s=timeout_s)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.lock"


def test_a_free_lock_is_taken_at_once_and_left_clean(path):
    for _ in range(2):
        with hold(path) as (_, _, waited_s):
            assert waited_s < 1
            assert re.match(rf"process {os.getpid()} of user {os.getuid()} on {HOST} since \d", holder_of(path))
            assert try_lock(path) is None
        assert holder_of(path) == "" and list(path.parent.iterdir()) == [path]


def test_a_waiting_process_says_who_holds_the_lock_and_gives_up_in_time(path, capfd):
    with held_elsewhere(path) as process:
        message = rf"toy was busy for \d+ s: held by process {process.pid}"
        with pytest.raises(UserError, match=message), hold(path):
            pass
        assert f"waiting for toy since 0 s: held by process {process.pid}" in capfd.readouterr().err
    # It was killed.
    with hold(path):
        pass
    assert f"took over {path}: held by process {process.pid}" in capfd.readouterr().err


def test_of_several_devices_the_first_free_one_is_held(tmp_path):
    locks = device_locks(["gpu-1", "gpu-2"], tmp_path / "locks")
    with hold(locks["gpu-1"]), hold_first_free(locks, timeout_s=1) as (device, _, _):
        assert device == "gpu-2"
        with pytest.raises(UserError, match="gpu-1, gpu-2 was busy"), hold_first_free(locks, timeout_s=0.2):
            pass
    with hold_first_free(locks, timeout_s=1) as (device, _, _):
        assert device == "gpu-1"


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_holder_learns_that_another_process_can_take_its_lock(tmp_path, lose):
    path = device_locks(["toy"], tmp_path / "locks")["toy"]
    with hold(path) as (_, lock, _):
        lock.check()
        lose(path)
        with pytest.raises(UserError, match=f"^{re.escape(str(path))}: the lock was renamed or removed .*run again$"):
            lock.check()
    # What the loser leaves behind does not trouble the next one.
    if not path.parent.is_file():
        with hold(device_locks(["toy"], tmp_path / "locks")["toy"]) as (_, lock, _):
            lock.check()


def test_without_flock_a_holder_learns_that_its_marker_is_gone(path, monkeypatch):
    def fails(*_, **__):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(filelock, "lock_descriptor", fails)
    with hold(path) as (_, lock, _):
        lock.check()
        path.with_name("toy.lock.held").unlink()
        with pytest.raises(UserError, match=r"toy\.lock\.held: the lock was renamed or removed"), hold(path):
            lock.check()


@pytest.mark.parametrize(
    ("mode", "parent"), [(0o1777, "lock"), (0o777, "lock"), (0o755, None), (0o775, None), (0, None)]
)
def test_the_folder_of_locks_is_one_for_all_users_of_a_machine(tmp_path, monkeypatch, mode, parent):
    """Debian's /run/lock is for everybody, that of RHEL for root: who asks, and their TMPDIR, makes no difference."""
    monkeypatch.setattr(locks, "VAR_LOCK", tmp_path / "lock")
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock").chmod(mode)
    expected = (tmp_path / parent if parent else Path("/tmp")) / "tileseer"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert locks.lock_folder(None) == expected
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert locks.lock_folder(None) == expected
    assert locks.lock_folder("chosen") == Path("chosen")


def write_foreign_note(path, host, boot):
    path.write_text(f"process 7 of user 0 on {host} since 2026-01-01 00:00:00\nboot {boot}\n")


def test_the_note_of_another_machine_counts_where_flock_knows_only_this_one(path):
    write_foreign_note(path, "elsewhere", "f00d")
    message = f"held by process 7 of user 0 on elsewhere .*if that process has ended, delete {path}"
    with pytest.raises(UserError, match=message), hold(path):
        pass
    assert "elsewhere" in holder_of(path)


@pytest.mark.parametrize("same", ["host", "boot"])
def test_a_dead_container_or_a_restart_of_this_machine_stops_nobody(path, same):
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    write_foreign_note(path, *((os.uname().nodename, "f00d") if same == "host" else ("container", boot)))
    with hold(path):
        pass


@pytest.fixture(params=lock_attacks.NO_FLOCK)
def no_flock(request, tmp_path_factory):
    """Environment in which ``flock`` fails as on a file system that has none."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return lock_attacks.without_flock(tmp_path_factory.mktemp("shim"), request.param)


def try_elsewhere(path, environment):
    code = """
import sys; from pathlib import Path; from tileseer.core.locks import *; from tileseer.core.errors import *
@reports_user_errors
def main():
    with hold_first_free({"toy": Path(sys.argv[1])}, timeout_s=0.3): print("got it")
sys.exit(main())
"""
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def test_without_flock_the_lock_holds_and_its_dead_owner_is_taken_over(path, no_flock):
    with held_elsewhere(path, **no_flock) as owner:
        second = try_elsewhere(path, no_flock)
        assert second.returncode == 2 and "Traceback" not in second.stderr
        holder = f"held by process {owner.pid} on {os.uname().nodename}"
        assert f"toy was busy for 0 s: {holder} (if that process has ended, delete {path}.held)" in second.stderr
        assert owner.poll() is None
    assert try_elsewhere(path, no_flock).stdout == "got it\n"
    assert try_elsewhere(path, no_flock).stdout == "got it\n"


def test_without_flock_the_lock_of_another_machine_is_never_taken(path, no_flock):
    path.with_name("toy.lock.held").write_text("7\nelsewhere\n")
    message = try_elsewhere(path, no_flock).stderr
    assert f"held by process 7 on elsewhere (if that process has ended, delete {path}.held)" in message


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_without_flock_a_marker_that_names_nobody_is_refused_with_the_fix(path, no_flock, make):
    marker = path.with_name("toy.lock.held")
    make(marker)
    message = try_elsewhere(path, no_flock).stderr
    assert f"held by a process that left no note (if that process has ended, delete {marker})" in message
    marker.unlink()
    assert try_elsewhere(path, no_flock).stdout == "got it\n"


needs_root = pytest.mark.skipif(os.getuid() != ROOT, reason="only root can become another user")


@pytest.fixture
def open_folder():
    """A folder that every user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="tileseer-lock-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@needs_root
@pytest.mark.parametrize(
    ("owner", "other", "namespace"), [(ROOT, NOBODY, False), (NOBODY, ROOT, False), (ROOT, NOBODY, True)]
)
def test_two_users_share_a_device(open_folder, owner, other, namespace):
    folder = open_folder / "locks"
    first, messages = start_as(owner, folder, 60)
    assert messages.get(timeout=20) == ""
    second, waiting = start_as(other, folder, namespace=namespace)
    time.sleep(0.5)
    first.kill()
    first.join()
    message = waiting.get(timeout=20)
    second.join()
    holder = rf"held by process {first.pid} of user {owner} on {HOST} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(rf"^waiting for toy since 0 s: {holder}$", message, re.M)
    assert re.search(rf"^took over .*toy.lock: {holder} and is gone$", message, re.M)
    assert second.exitcode == 0


@needs_root
def test_a_lock_folder_of_one_user_is_refused_with_the_fix(open_folder):
    folder = open_folder / "locks"
    folder.mkdir(mode=0o755)
    process, messages = start_as(NOBODY, folder)
    message = messages.get(timeout=20)
    process.join()
    assert str(folder) in message and "user 65534" in message and "lock.folder" in message


@needs_root
@pytest.mark.parametrize(
    "make", [lambda path: path.touch(0o600), lambda path: os.mkfifo(path, 0o600)], ids=["file", "FIFO"]
)
def test_what_another_user_keeps_to_themselves_is_refused_with_the_fix(open_folder, make):
    path = device_locks(["toy"], open_folder / "locks")["toy"]
    make(path)
    process, messages = start_as(NOBODY, path.parent)
    message = messages.get(timeout=20)
    process.join()
    assert str(path) in message and "\n" not in message
    assert (
        f"user {NOBODY} cannot lock" in message
        and "remove it as user 0 or root" in message
        and "lock.folder" in message
    )
    path.unlink()
    process, messages = start_as(NOBODY, path.parent)
    assert messages.get(timeout=20) == ""
    process.join()


@needs_root
def test_a_user_who_renames_the_lock_of_another_one_ends_its_holding(open_folder):
    folder = open_folder / "locks"
    with hold(device_locks(["toy"], folder)["toy"]) as (_, lock, _):
        folder.rename(open_folder / "moved")
        process, messages = start_as(NOBODY, folder)
        assert messages.get(timeout=20) == "", "the new lock is free"
        process.join()
        with pytest.raises(UserError, match="the lock was renamed or removed"):
            lock.check()


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_is_no_plain_file_is_named_and_not_touched(tmp_path, path, plant):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    plant(path)
    advice = rf"^{re.escape(str(path))}: user .* no plain file .*remove it as user {os.getuid()} or root; .*lock.folder"
    with pytest.raises(UserError, match=advice), hold(path):
        pass
    assert victim.read_text() == "precious" and victim.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "nothing").exists()


NOTES = {
    "escape codes": '{"pid": "\x1b[2J\x1b]0;pwned\x07", "user": 0, "since": "\x1b[31m"}',
    "much": "x" * 10_000_000,
    "bytes": "\x00\xff",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_in_another_form_is_not_shown(path, capfd, note):
    with held_elsewhere(path):
        path.write_text(note, encoding="latin1")
        with pytest.raises(UserError, match="held by a process that left no note"), hold(path):
            pass
    with hold(path):
        pass
    printed = capfd.readouterr().err
    assert printed.replace("\n", "").isprintable() and "took over" not in printed


@needs_root
def test_the_dead_note_of_another_user_in_a_sticky_folder_stops_nobody(open_folder):
    folder = open_folder / "locks"
    first, messages = start_as(ROOT, folder, 60)
    assert messages.get(timeout=20) == ""
    assert folder.stat().st_mode & 0o7777 == 0o1777
    first.kill()
    first.join()
    second, waiting = start_as(NOBODY, folder)
    assert f"tileseer-toy.lock: held by process {first.pid} of user {ROOT}" in waiting.get(timeout=20)
    second.join()
    assert second.exitcode == 0
