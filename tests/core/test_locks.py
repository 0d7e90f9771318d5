import contextlib
import errno
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tileseer.core import locks
from tileseer.core.errors import UserError
from tileseer.core.locks import device_locks, hold_first_free, hold_folder

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from tileseer.core.locks import hold_first_free
os.setuid(int(sys.argv[2]))
os.umask(0o077)
with hold_first_free({"toy": Path(sys.argv[1])}, timeout_s=60) as (_, handle, _):
    child = subprocess.Popen(["sleep", "60"], pass_fds=[handle] if "child" in sys.argv else [], stdout=2)
    print("held", child.pid, flush=True)
    time.sleep(60)
"""
ROOT, NOBODY = 0, 65534


@contextlib.contextmanager
def held_elsewhere(path, user=None, *words):
    """Another process holds the lock meanwhile, and has a child; both are killed at the end."""
    command = [sys.executable, "-c", HOLD, str(path), str(os.getuid() if user is None else user), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said, child = process.stdout.readline().split()
    assert said == "held"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        os.kill(int(child), 9)


def hold(path, timeout_s=0.3):
    return hold_first_free({"toy": path}, timeout_s=timeout_s)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.lock"


def test_a_free_lock_is_taken_at_once(path):
    for _ in range(2):
        with hold(path) as (_, _, waited_s):
            assert waited_s < 1
            note = f"process {os.getpid()} of user {os.getuid()} on {os.uname().nodename}"
            assert path.read_text().startswith(note)
        assert list(path.parent.iterdir()) == [path]


def test_a_waiting_process_says_who_holds_the_lock_which_is_free_when_its_holder_is_killed(path, capfd):
    with held_elsewhere(path) as process:
        message = rf"toy was busy for \d+ s: held by process {process.pid} of .*; wait for it, or raise lock.timeout_s"
        with pytest.raises(UserError, match=message), hold(path):
            pass
        assert f"waiting for toy since 0 s: held by process {process.pid}" in capfd.readouterr().err
        process.kill()
        with hold(path, timeout_s=20):
            pass


def test_a_child_that_inherited_the_lock_holds_it_when_its_parent_is_killed(path):
    with held_elsewhere(path, None, "child") as process:
        process.kill()
        process.wait()
        with pytest.raises(UserError, match="was busy"), hold(path):
            pass
    with hold(path, timeout_s=20):
        pass


def test_of_several_devices_the_first_free_one_is_held(tmp_path):
    paths = device_locks(["gpu-1", "gpu-2"], tmp_path / "locks")
    with hold(paths["gpu-1"]), hold_first_free(paths, timeout_s=1) as (device, _, _):
        assert device == "gpu-2"
        with pytest.raises(UserError, match="gpu-1, gpu-2 was busy"), hold_first_free(paths, timeout_s=0.2):
            pass
    with hold_first_free(paths, timeout_s=1) as (device, _, _):
        assert device == "gpu-1"


def test_a_file_system_without_locks_is_told_in_one_sentence(path, monkeypatch):
    def fails(*_, **__):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks, "lock_descriptor", fails)
    for use in (hold(path), hold_folder(path.parent)):
        with pytest.raises(UserError, match=r"the file system of this folder has no locks .* lock\.folder"), use:
            pass


@pytest.mark.parametrize(("mode", "parent"), [(0o1777, "lock"), (0o755, None), (0o775, None), (0, None)])
def test_the_folder_of_locks_is_one_for_all_users_of_a_machine(tmp_path, monkeypatch, mode, parent):
    """Debian's /run/lock is for everybody, that of RHEL for root: who asks, and their TMPDIR, makes no difference."""
    monkeypatch.setattr(locks, "VAR_LOCK", tmp_path / "lock")
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock").chmod(mode)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert locks.lock_folder(None) == (tmp_path / parent if parent else Path("/tmp")) / "tileseer"
    assert locks.lock_folder("chosen") == Path("chosen")


needs_root = pytest.mark.skipif(os.getuid() != ROOT, reason="only root can become another user")


@pytest.fixture
def open_folder():
    """A folder that every user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="tileseer-lock-", dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def as_nobody(path):
    """What is said to another user who waits for a lock, and what becomes of it."""
    code = "from test_locks import *; os.setuid(65534)\ntry:\n with hold(Path({!r}), 1): print('free')\n"
    code += "except UserError as error: print(error)"
    place = {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", code.format(str(path))]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | place).stdout


@needs_root
@pytest.mark.parametrize("owner", [ROOT, NOBODY])
def test_two_users_share_a_device(open_folder, owner):
    path = device_locks(["toy"], open_folder / "locks")["toy"]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o1777
    with held_elsewhere(path, owner) as process:
        assert f"held by process {process.pid} of user {owner} on" in as_nobody(path)
    assert as_nobody(path) == "free\n"
    with hold(path):
        pass


@needs_root
def test_a_folder_or_a_file_of_one_user_is_refused_with_the_fix(open_folder, monkeypatch):
    path = device_locks(["toy"], open_folder / "locks")["toy"]
    path.touch(0o600)
    message = as_nobody(path)
    assert f"{path}: user {NOBODY} cannot lock this file (Permission denied)" in message and "lock.folder" in message
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match=rf"{path.parent}: .* not writable .* chmod 1777 .* lock\.folder"):
        device_locks(["toy"], path.parent)


PLANTED = {
    "a FIFO": os.mkfifo,
    "a link": lambda path: path.symlink_to(path.with_name("victim")),
    "a dangling link": lambda path: path.symlink_to(path.with_name("nothing")),
    "a second name": lambda path: path.hardlink_to(path.with_name("victim")),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_is_no_plain_file_is_named_and_not_touched(tmp_path, path, plant):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    plant(path)
    advice = rf"^{re.escape(str(path))}: user .* cannot lock this file .*; remove it .*lock\.folder"
    with pytest.raises(UserError, match=advice), hold(path):
        pass
    assert victim.read_text() == "precious" and not (tmp_path / "nothing").exists()


def test_a_note_of_another_program_does_nothing_to_a_terminal(path, capfd):
    with held_elsewhere(path):
        path.write_text("\x1b[2J\x1b]0;pwned\x07" + "x" * 10_000)
        with pytest.raises(UserError) as told, hold(path):
            pass
        assert len(str(told.value)) < 1000
    assert capfd.readouterr().err.replace("\n", "").isprintable()
