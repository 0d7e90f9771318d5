"""Files in folders that other users may write to: what is no plain file, such as a link or a FIFO, is not touched."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link is refused, and opening a FIFO does not wait."""


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Descriptor of a plain file; ``OSError`` for anything else, and for a second name of a file to be written."""
    try:
        handle = os.open(path, flags | _PLAIN)
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
    """Error to raise for a link, a FIFO or the like."""
    return OSError(errno.EINVAL, "this is no plain file or folder; remove it", str(path))


def open_shared(path: Path) -> int:
    """Descriptor of a plain file that every user may write; it is created if it does not exist."""
    while True:
        # Without O_CREAT: in a sticky folder Linux refuses that for the file of another user.
        with suppress(FileNotFoundError):
            return open_plain(path, os.O_RDWR)
        with suppress(FileExistsError):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, 0o666)
            # Whatever the umask.
            os.fchmod(handle, 0o666)
            return handle
