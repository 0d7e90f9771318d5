"""Who makes an entry of the cache just now: of two workflows that miss the same one, one makes it and the other waits.

A claim is a lock on one byte of one file, at a place that the key gives. So there is nothing to clean up, and the
system releases the claims of a process that ends, however it ends. Two keys with the same place, one pair in 2**60,
wait for each other, which costs time only. The locks are those of a process (``fcntl``): it must not hold two sets
of claims at once.
"""

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_DIGITS = 15
"""Hex digits of a key that give its place: an offset has to be positive."""


@contextmanager
def claimed(file: Path, keys: Sequence[str], wait: bool) -> Iterator[set[str]]:
    """Hold the claims on ``keys``; yield those that are ours: all if we ``wait``, else those that nobody else holds.

    A waiting process must hold no other claim. Keys are taken in order, so that two who wait never wait for each other.
    """
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _open_to_all(handle)
        ours = {key for key in sorted(set(keys)) if _lock(handle, key, wait)}
        yield ours
    finally:
        # With the file the process gives up all of its locks on it.
        os.close(handle)


def _open_to_all(handle: int) -> None:
    """Let other users lock as well, whatever the umask; if the file is theirs, they have done so."""
    if os.fstat(handle).st_uid == os.getuid():
        os.fchmod(handle, 0o666)


def _lock(handle: int, key: str, wait: bool) -> bool:
    place = int(key[:_DIGITS], 16)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):
        if not wait:
            return False
        print("cache: waiting for another workflow, which makes an entry that is needed here", file=sys.stderr)
        fcntl.lockf(handle, fcntl.LOCK_EX, 1, place)
    return True
