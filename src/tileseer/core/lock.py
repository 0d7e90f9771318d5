"""One GPU, one benchmark at a time: an advisory lock file for each device, shared by all users of the machine.

The lock belongs to the process that uses the GPU. The kernel frees it when that process ends, however it ends. The
file itself says who holds it: a waiting job prints that. It stays when the lock is free, and then it is empty.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tileseer.core import shared_file
from tileseer.core.errors import UserError, printed

Got = TypeVar("Got")
POLL_S = 0.1
REPORT_EVERY_S = 30.0
NOTE = re.compile(r"process \d{1,10} of user \d{1,10} since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
"""What a holder writes into the lock file; anything else is not shown."""


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
    files = {device: folder / f"tileseer-{re.sub(r'[^A-Za-z0-9_-]', '_', device)}.lock" for device in devices}

    def first_free() -> tuple[str, int] | None:
        for device, path in files.items():
            if (handle := _locked(path)) is not None:
                if before := holder(path):
                    # The lock was free although the note is still there: its owner died without cleaning up.
                    print(f"took over {device}: held by {before} and is gone", file=sys.stderr, flush=True)
                return device, handle
        return None

    def held() -> str:
        return "; ".join(f"held by {holder(path) or 'a process that left no note'}" for path in files.values())

    (device, handle), waited = wait(", ".join(devices), first_free, held, timeout_s)
    try:
        _write(handle, f"process {os.getpid()} of user {os.getuid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        yield device, waited
    finally:
        _write(handle, "")
        os.close(handle)


def _locked(path: Path) -> int | None:
    """Descriptor that holds the lock of a file; None if another process has it."""
    handle = shared_file.opened_by_all(path)
    # The lock of a removed or replaced file of that name counts, too.
    if shared_file.lock(handle, path, wait=False) and not shared_file.opened_elsewhere(f"{path.resolve()} (deleted)"):
        return handle
    os.close(handle)
    return None


def _write(handle: int, text: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)


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
            print(f"waiting for {what} since {waited:.0f} s: {printed(held())}", file=sys.stderr, flush=True)
            report = time.monotonic() + REPORT_EVERY_S
        time.sleep(min(POLL_S, timeout_s - waited))
    return got, time.monotonic() - start


def _make_shared(folder: Path) -> None:
    """Make the folder so that every user can lock in it, and nobody removes the files of others."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}: the lock's folder is not writable for user {os.getuid()}; whoever shares the device has to "
                f"be able to write there: chmod 1777 {folder}, or set lock.folder to another one, the same for all"
            ) from None


def holder(path: Path) -> str:
    """Who holds a lock, as its file says; empty if that is nothing, or not in the form that a holder writes."""
    try:
        handle = shared_file.opened(path)
    except OSError:
        return ""
    with open(handle, "rb") as file:
        found = NOTE.fullmatch(file.read(200).decode("ascii", "replace"))
    return found[0] if found else ""
