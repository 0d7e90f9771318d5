"""One process at a time, by a lock of the system on a file; the system frees it when its process ends, however it ends.

::

    with hold_first_free({"GPU 0": path}, timeout_s=60) as (device, handle, waited_s):   # waits, and says for whom
    with hold_folder(folder):                                                            # waits a moment

The file stays; while the lock is held it says by whom. A process that inherits the open file holds the lock as well.
"""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from tileseer.core.atomic import naming
from tileseer.core.errors import UserError, printed
from tileseer.core.reading import regular_file

VAR_LOCK = Path("/var/lock")
"""For root alone, or a group, on some systems."""
POLL_S = 0.1
REPORT_EVERY_S = 30.0
LONGEST_NOTE = 200
WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What ``flock`` fails with on a file system that has none."""


@contextmanager
def hold_first_free(paths: Mapping[str, Path], *, timeout_s: float) -> Iterator[tuple[str, int, float]]:
    """Hold the first free lock of several; yield its description, the open file, and the seconds waited.

    The keys of ``paths`` describe what is locked. ``UserError`` after ``timeout_s``, and where nothing can be locked.
    """
    subject = ", ".join(paths)
    begin = report = time.monotonic()
    while not (free := next(((name, lock) for name, path in paths.items() if (lock := try_lock(path))), None)):
        waited_s = time.monotonic() - begin
        holders = "; ".join(f"held by {_note(path) or 'a process that left no note'}" for path in paths.values())
        if waited_s >= timeout_s:
            raise UserError(f"{subject} was busy for {waited_s:.0f} s: {holders}; wait for it, or raise lock.timeout_s")
        if time.monotonic() >= report:
            print(f"waiting for {subject} since {waited_s:.0f} s: {holders}", file=sys.stderr, flush=True)
            report = time.monotonic() + REPORT_EVERY_S
        time.sleep(min(POLL_S, timeout_s - waited_s))
    try:
        yield *free, time.monotonic() - begin
    finally:
        os.close(free[1])


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Wait until no other process holds a folder, and hold it; C++ programs do the same (``serving/tuned.hpp``)."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(handle, folder, blocking=True)
        yield
    finally:
        os.close(handle)


def try_lock(path: Path) -> int | None:
    """Lock a file and return the open file, which is locked until it is closed; None if another process has it."""
    handle = _open(path)
    try:
        # Without a name it was removed since it was opened: the next one would lock another file.
        if _lock(handle, path, blocking=False) and os.fstat(handle).st_nlink:
            note = f"process {os.getpid()} of user {os.getuid()} on {os.uname().nodename} since {time.ctime()}\n"
            with naming(path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, note.encode(), 0)
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock of a file."""
    if not path.is_file():
        return False
    handle = _open(path)
    try:
        return not _lock(handle, path, blocking=False)
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    """Open a file that every user may lock; ``UserError`` for a link, a FIFO and the like, which others may plant."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with suppress(FileExistsError):
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            # Whatever the umask.
            os.fchmod(handle, 0o666)
            return handle
        # Without O_CREAT: in a sticky folder Linux refuses that for the file of another user.
        handle = os.open(path, flags)
        state = os.fstat(handle)
        if stat.S_ISREG(state.st_mode) and state.st_nlink < 2:
            return handle
        os.close(handle)
        reason = "it is no plain file with one name"
    except OSError as error:
        if not os.path.lexists(path):
            raise
        reason = str(error.strerror)
    raise UserError(
        f"{path}: user {os.getuid()} cannot lock this file ({reason}); remove it while nothing runs; for a device, "
        "lock.folder can be another folder, the same for all"
    )


class NoLocks(UserError):
    """The file system of a folder has no locks."""


def _lock(handle: int, path: Path, blocking: bool) -> bool:
    try:
        return lock_descriptor(handle, blocking=blocking)
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            raise NoLocks(
                f"{path}: the file system of this folder has no locks (flock: {error.strerror}); use a folder of "
                "another one; for a device set lock.folder"
            ) from None
        raise


def _note(path: Path) -> str:
    """Return what the holder of a lock wrote of itself."""
    with suppress(OSError), regular_file(path) as file:
        return printed(file.read(LONGEST_NOTE).decode("ascii", "replace").strip().replace("\n", " "))
    return ""


def lock_folder(configured: str | None) -> Path:
    """Return the configured folder of the locks of devices, or one under /var/lock where everybody can write, or /tmp.

    What this user may do and ``TMPDIR`` make no difference: all users of a machine have to come to the same folder.
    """
    if configured is not None:
        return Path(configured).expanduser()
    is_for_everybody = False
    with suppress(OSError):
        is_for_everybody = (
            bool(VAR_LOCK.stat().st_mode & stat.S_IWOTH) and not os.statvfs(VAR_LOCK).f_flag & os.ST_RDONLY
        )
    return (VAR_LOCK if is_for_everybody else Path("/tmp")) / "tileseer"


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
