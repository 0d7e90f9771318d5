"""One GPU, one benchmark at a time: an advisory lock file for each device, shared by all users of the machine.

The lock belongs to the process that uses the GPU. The kernel frees it when that process ends, however it ends.
A note beside it says who holds it: a waiting job prints the lock's holder.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from tileseer.core.errors import UserError

Got = TypeVar("Got")
POLL_S = 0.1
REPORT_EVERY_S = 30.0


def lock_folder(configured: str | None) -> Path:
    """Folder of the lock files: the configured one, or one under /var/lock or the temporary folder."""
    if configured is not None:
        return Path(configured)
    shared = Path("/var/lock")
    return (shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / "tileseer"


@contextmanager
def any_of(devices: Sequence[str], folder: Path, timeout_s: float) -> Iterator[tuple[str, float]]:
    """Hold the lock of the first of ``devices`` that is free; yield it and the seconds waited.

    After ``timeout_s`` a ``UserError`` is raised.
    """
    _make_shared(folder)
    stems = {device: "tileseer-" + re.sub(r"[^A-Za-z0-9_-]", "_", device) for device in devices}
    notes = {device: folder / f"{stem}.holder.json" for device, stem in stems.items()}
    # Everybody must be able to open the file, whoever made it.
    locks = {device: FileLock(folder / f"{stem}.lock", mode=0o666) for device, stem in stems.items()}

    def first_free() -> str | None:
        for device, lock in locks.items():
            with suppress(Timeout):
                lock.acquire(timeout=0)
                if notes[device].exists():
                    # The lock was free although the note is still there: its owner died without cleaning up.
                    print(f"took over {device}: {holder(notes[device])} and is gone", file=sys.stderr, flush=True)
                return device
        return None

    device, waited = wait(", ".join(devices), first_free, lambda: "; ".join(map(holder, notes.values())), timeout_s)
    try:
        _leave_note(notes[device])
        yield device, waited
    finally:
        notes[device].unlink(missing_ok=True)
        locks[device].release()


def wait(what: str, attempt: Callable[[], Got | None], held: Callable[[], str], timeout_s: float) -> tuple[Got, float]:
    """Try until ``attempt`` succeeds; its result and the seconds waited.

    While it waits, and in the ``UserError`` after ``timeout_s``, it tells by whom ``what`` is ``held``.
    """
    start = report = time.monotonic()
    while (got := attempt()) is None:
        waited = time.monotonic() - start
        if waited >= timeout_s:
            raise UserError(f"{what} was busy for {waited:.0f} s: {held()}; wait for it, or raise lock.timeout_s")
        if time.monotonic() >= report:
            print(f"waiting for {what} since {waited:.0f} s: {held()}", file=sys.stderr, flush=True)
            report = time.monotonic() + REPORT_EVERY_S
        time.sleep(min(POLL_S, timeout_s - waited))
    return got, time.monotonic() - start


def _make_shared(folder: Path) -> None:
    """Make the folder so that every user can lock in it and clear the note of an owner who died."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    except FileExistsError:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}: the lock's folder is not writable for user {os.getuid()}; whoever shares the device has to "
                f"be able to write there: chmod 777 {folder}, or set lock.folder to another one, the same for all users"
            ) from None


def _leave_note(note: Path) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    note.unlink(missing_ok=True)
    # A new file: the last owner may have been another user, whose file is not ours to write.
    with note.open("x") as stream:
        # Whatever the umask: other users read in it whom they wait for.
        os.fchmod(stream.fileno(), 0o644)
        json.dump({"pid": os.getpid(), "user": os.getuid(), "since": since}, stream)


def holder(note: Path) -> str:
    """Who holds the lock, as far as the note beside it says."""
    try:
        content = json.loads(note.read_text())
        return f"held by process {content['pid']} of user {content['user']} since {content['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "held by a process that left no note"
