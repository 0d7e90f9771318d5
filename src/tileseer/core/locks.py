"""Locks by file: one holder at a time, among all users of a machine and among machines that share a disk.

::

    with hold_first_free({"GPU 0": path}, timeout_s=60) as (device, lock, waited_s):   # waits, and says for whom
        lock.check()            # ``UserError`` if the file was renamed or removed, so that another may have it too
    lock = try_lock(path)       # does not wait; None if another process has it, else lock.close() or ``with lock:``
    holder_of(path)             # "process 12 of user 1000 on nodeA since ...", or "" if nobody has it

The kernel frees a lock when its process ends, however it ends. The file stays; while the lock is held it says by whom.

On a shared disk the kernel may know the locks of its own machine only, so the note of a process of another machine
counts as a lock. Where the file system has no ``flock`` at all, the lock is a second file, ``PATH.held``, that names
its process; the file of a process that has ended is taken over on its own machine. In both cases nobody can tell from
another machine whether that process still runs: the message says which file to delete if it does not.
"""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from tileseer.core.errors import UserError, printed
from tileseer.core.shared_file import open_plain, open_shared

Result = TypeVar("Result")
VAR_LOCK = Path("/var/lock")
"""For root alone, or a group, on some systems."""
POLL_S = 0.1
REPORT_EVERY_S = 30.0
_NO_FLOCK = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What ``flock`` fails with on a file system that has none."""
_NOTE = re.compile(
    r"(process \d{1,10} of user \d{1,10} on ([\w.-]{1,255}) since [\d-]{10} [\d:]{8})\nboot ([\w-]{0,40})\n",
    re.ASCII,
)
"""What the holder of a lock writes into its file; anything else is not shown."""
_MARKER = re.compile(r"(\d{1,10})\n([\w.-]{1,255})(\?\S*)?\n(\d{1,80}\n)?", re.ASCII)
"""What filelock writes into ``PATH.held``: process, host and container, and when the process began."""


class Lock(AbstractContextManager["Lock"]):
    """A lock that this process has until it closes it."""

    def __init__(self, path: Path, handle: int, held: ExitStack) -> None:
        """``handle`` is the open file that is locked; closing ``held`` frees it."""
        self._path, self._handle, self._held = path, handle, held

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the lock."""
        self._held.close()

    def takes_folder(self) -> bool:
        """Lock the folder of the file as well, until ``close``: who removes the file does not free the folder.

        False, with both free, if another process has the folder. Where no folder can be locked, the file is enough.
        """
        from filelock import lock_descriptor

        handle = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        self._held.callback(os.close, handle)
        try:
            free = lock_descriptor(handle, blocking=False)
        except OSError:
            free = True
        if not free:
            self.close()
        return free

    def check(self) -> None:
        """Raise a ``UserError`` if the file was renamed or removed: the next process would lock a new one."""
        if not _is_still(self._path, self._handle):
            raise UserError(
                f"{self._path}: the lock was renamed or removed while this process held it, and another one may have "
                "it now; what was measured up to then is in the journal, run again"
            )


def try_lock(path: Path) -> Lock | None:
    """Take the lock of a file if it is free; closing the result frees it. None if another process has the lock.

    ``UserError`` if the file is none that this user can lock.
    """
    from filelock import lock_descriptor  # Not above: most jobs only read the cache, and need no lock.

    with ExitStack() as held:
        handle = _open(path)
        held.callback(os.close, handle)
        try:
            if not lock_descriptor(handle, blocking=False):
                return None
        except OSError as error:
            if error.errno in _NO_FLOCK:
                return _try_marker(path)
            raise
        before = _note(path)
        if (before and _is_of_another_machine(before)) or not _is_still(path, handle):
            return None
        if before:
            print(f"took over {path}: held by {before[1]} and is gone", file=sys.stderr, flush=True)
        owner, now = f"of user {os.getuid()} on {os.uname().nodename}", time.strftime("%Y-%m-%d %H:%M:%S")
        _write(handle, f"process {os.getpid()} {owner} since {now}\nboot {_boot()}\n")
        held.callback(_write, handle, "")
        return Lock(path, handle, held.pop_all())


def _open(path: Path) -> int:
    try:
        return open_shared(path)
    except OSError as error:
        try:
            state = path.lstat()
        except OSError:
            raise error from None
        if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
            reason = "it is no plain file with one name"
        elif isinstance(error, PermissionError):
            reason = f"its mode is {state.st_mode & 0o777:o} and not 666"
        else:
            raise
        raise UserError(
            f"{path}: user {os.getuid()} cannot lock this file of user {state.st_uid}: {reason}; while nothing runs, "
            f"remove it as user {state.st_uid} or root; for a device's lock, lock.folder can be another one for all"
        ) from None


def _is_still(path: Path, handle: int) -> bool:
    """Whether the open file was not removed or replaced since."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:  # It is not there, its folder is not, or neither can be reached.
        return False


def _try_marker(path: Path) -> Lock | None:
    from filelock import SoftFileLock, Timeout

    marker = _marker_of(path)
    lock = SoftFileLock(marker, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    except PermissionError:
        if marker.exists():  # Another user's.
            return None
        raise
    with ExitStack() as held:
        held.callback(lock.release)
        handle = open_plain(marker)
        held.callback(os.close, handle)
        return Lock(marker, handle, held.pop_all())


@contextmanager
def hold_first_free(paths: Mapping[str, Path], *, timeout_s: float) -> Iterator[tuple[str, Lock, float]]:
    """Hold the first free lock of several; yield its description, the key in ``paths``, it, and the seconds waited.

    ``UserError`` after ``timeout_s``.
    """

    def first_free() -> tuple[str, Lock] | None:
        locks = ((description, try_lock(path)) for description, path in paths.items())
        return next(((description, lock) for description, lock in locks if lock), None)

    def holders() -> str:
        return "; ".join(f"held by {_described_holder(path)}" for path in paths.values())

    (description, lock), waited_s = wait_for(", ".join(paths), first_free, holders, timeout_s)
    with lock:
        yield description, lock, waited_s


def wait_for(
    subject: str, attempt: Callable[[], Result | None], holders: Callable[[], str], timeout_s: float
) -> tuple[Result, float]:
    """Try until ``attempt`` succeeds; return its result and the seconds waited.

    Meanwhile, and in the ``UserError`` after ``timeout_s``, the message says what ``holders`` says of ``subject``.
    """
    start = report = time.monotonic()
    while (result := attempt()) is None:
        waited = time.monotonic() - start
        if waited >= timeout_s:
            raise UserError(f"{subject} was busy for {waited:.0f} s: {holders()}; wait for it, or raise lock.timeout_s")
        if time.monotonic() >= report:
            print(f"waiting for {subject} since {waited:.0f} s: {printed(holders())}", file=sys.stderr, flush=True)
            report = time.monotonic() + REPORT_EVERY_S
        time.sleep(min(POLL_S, timeout_s - waited))
    return result, time.monotonic() - start


def holder_of(path: Path) -> str:
    """Process that holds a lock, by its note; empty if there is none, or not in the form that a holder writes."""
    if note := _note(path):
        return note[1]
    marker = _MARKER.fullmatch(_read(_marker_of(path)))
    return f"process {marker[1]} on {marker[2]}" if marker else ""


def _described_holder(path: Path) -> str:
    note, holder = _note(path), holder_of(path)
    lock = path if note else _marker_of(path)
    if (note and not _is_of_another_machine(note)) or not os.path.lexists(lock):
        return holder or "a process that left no note"  # It lives: the system knows.
    return f"{holder or 'a process that left no note'} (if that process has ended, delete {lock})"


def _note(path: Path) -> re.Match[str] | None:
    return _NOTE.fullmatch(_read(path))


def _is_of_another_machine(note: re.Match[str]) -> bool:
    """Whether a note is of another host since another boot: containers of one machine share its locks and its boot."""
    return note[2] != os.uname().nodename and note[3] != _boot()


def _boot() -> str:
    return _read(Path("/proc/sys/kernel/random/boot_id")).strip()


def _marker_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.held")


def _read(path: Path) -> str:
    try:
        handle = open_plain(path)
    except OSError:
        return ""
    with open(handle, "rb") as file:
        return file.read(500).decode("ascii", "replace")


def _write(handle: int, text: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)


def lock_folder(configured: str | None) -> Path:
    """Folder of the locks of devices: the configured one, or one under /var/lock where everybody can write, or /tmp.

    What this user may do and ``TMPDIR`` make no difference: all users of a machine have to come to the same folder.
    """
    if configured is not None:
        return Path(configured)
    return (VAR_LOCK if _is_for_everybody(VAR_LOCK) else Path("/tmp")) / "tileseer"


def _is_for_everybody(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH) and not os.statvfs(folder).f_flag & os.ST_RDONLY
    except OSError:
        return False


def device_locks(devices: list[str], folder: Path) -> dict[str, Path]:
    """Lock file of each device, in a folder that every user can write to and from which nobody removes others' files.

    ``UserError`` if this user cannot write to it.
    """
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except (FileExistsError, PermissionError):
        if not os.access(folder, os.W_OK | os.X_OK):
            how = "chmod" if folder.exists() else "mkdir -p -m"
            raise UserError(
                f"{folder}: the lock's folder is not writable for user {os.getuid()}; whoever shares the device has to "
                f"be able to write there: {how} 1777 {folder}, or set lock.folder to another one, the same for all"
            ) from None
    return {device: folder / f"tileseer-{re.sub(r'[^A-Za-z0-9_-]', '_', device)}.lock" for device in devices}
