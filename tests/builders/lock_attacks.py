"""Attacks on the file of a lock, for the tests of locks and the fault suite."""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.core.locks import device_locks, hold_first_free

ROOT, NOBODY = 0, 65534
NO_FLOCK = ("ENOSYS", "ENOLCK", "EOPNOTSUPP")
"""Errors of ``flock`` on a file system that has none."""

LOSSES = {
    "lock removed": lambda path: path.unlink(),
    "lock renamed": lambda path: path.rename(path.with_name("away")),
    "lock replaced": lambda path: os.replace(shutil.copy(path, path.with_name("copy")), path),
    "folder renamed": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    "folder removed": lambda path: shutil.rmtree(path.parent),
    "folder replaced": lambda path: (path.parent.rename(path.parent.with_name("elsewhere")), path.parent.mkdir()),
    "a file in place of the folder": lambda path: (shutil.rmtree(path.parent), path.parent.touch()),
}


PLANTED = {
    "a FIFO": os.mkfifo,
    "a link": lambda path: path.symlink_to(path.with_name("victim")),
    "a dangling link": lambda path: path.symlink_to(path.with_name("nothing")),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a second name": lambda path: path.hardlink_to(path.with_name("victim")),
    "a folder": Path.mkdir,
}


SHIM = """
#define _GNU_SOURCE
#include <errno.h>
int flock(int fd, int operation) { errno = %s; return -1; }
"""


def without_flock(folder: Path, error: str) -> dict[str, str]:
    """Return an environment in which ``flock`` fails with an error; the library that does it is built in ``folder``."""
    source, library = folder / f"{error}.c", folder / f"{error}.so"
    source.write_text(SHIM % error)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}


def become(user: int, namespace: bool = False) -> None:
    """Become a user with a narrow umask; in a namespace of its own that user seems to be root."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.umask(0o077)
    if namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        # PR_SET_DUMPABLE, without which the files below are those of the earlier user; CLONE_NEWUSER.
        if libc.prctl(4, 1, 0, 0, 0) or libc.unshare(0x10000000):
            raise OSError(ctypes.get_errno(), "no namespace of users")
        Path("/proc/self/setgroups").write_text("deny")
        for name in ("uid_map", "gid_map"):
            Path("/proc/self", name).write_text(f"0 {user} 1")


def hold_as(user: int, folder: Path, messages: Queue[str], seconds: float, namespace: bool) -> None:
    """Hold the lock as a user, and send what was printed while it was not free."""
    become(user, namespace)
    sys.stderr = printed = io.StringIO()
    try:
        with hold_first_free(device_locks(["toy"], folder), timeout_s=60):
            messages.put(printed.getvalue())
            time.sleep(seconds)
    except UserError as error:
        messages.put(str(error))


def start_as(user: int, folder: Path, seconds: float = 0.0, namespace: bool = False) -> tuple[BaseProcess, Queue[str]]:
    """Start a process that holds the lock as a user; return it and the queue of its messages."""
    # Forked: another user need not be able to read this environment.
    context = multiprocessing.get_context("fork")
    messages = context.Queue()
    process = context.Process(target=hold_as, args=(user, folder, messages, seconds, namespace))
    process.start()
    return process, messages
