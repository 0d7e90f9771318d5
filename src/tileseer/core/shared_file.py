"""Files in folders that other users may write to: what is no plain file, such as a link or a FIFO, is not touched."""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link is refused, and opening a FIFO does not wait."""


def opened(path: Path, flags: int = os.O_RDONLY) -> int:
    """Descriptor of a plain file; ``OSError`` for anything else, and for a second name of a file to be written."""
    try:
        handle = os.open(path, flags | PLAIN)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise not_plain(path) from None
        raise
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or (flags & os.O_RDWR and state.st_nlink > 1):
        os.close(handle)
        raise not_plain(path)
    return handle


def not_plain(path: Path) -> OSError:
    """What to raise of a link, a FIFO or the like."""
    return OSError(errno.EINVAL, "this is no plain file or folder; remove it", str(path))


def opened_by_all(path: Path) -> int:
    """Descriptor of a file that every user may write."""
    while True:
        try:
            # Without O_CREAT: in a sticky folder Linux refuses that for the file of another user.
            return opened(path, os.O_RDWR)
        except FileNotFoundError:
            pass
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | PLAIN, 0o666)
        except FileExistsError:
            continue
        # Whatever the umask.
        os.fchmod(handle, 0o666)
        return handle


def lock(handle: int, path: Path, wait: bool) -> bool:
    """Lock the file behind a descriptor; False if another process has it, or if ``path`` is another file by now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def opened_elsewhere(shown: str) -> list[int]:
    """Processes of this machine that have a file open, as far as we may look; ``shown``: what /proc calls the file."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        # Gone by now, or another user's.
        with suppress(OSError):
            if os.readlink(descriptor) == shown:
                found.add(int(descriptor.parts[2]))
    return sorted(found)
