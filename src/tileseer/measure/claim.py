"""One writer a journal: a claim beside the file, which holds between machines that share the folder.

The lock of a device ends at its machine, and a shared file system may lose the locks of a machine that it does not
reach. So the writer of a journal leaves a file with its name and touches it every few seconds. The claim of a process
of this machine that has ended is taken over at once; that of another machine when it was not renewed for ``LEASE_S``.
A writer that was wrongly taken for dead writes nothing any more.
"""

import sys
import time
from pathlib import Path

from filelock import SoftFileLease, Timeout

from tileseer.core.atomic import naming
from tileseer.core.errors import UserError, printed
from tileseer.core.locks import wait_for

LEASE_S = 30.0
"""Silence after which a process is taken for dead, on the clock of the one that waits."""


class Claim:
    """The right to write a file, held until ``release`` or the end of the process."""

    def __init__(self, path: Path, timeout_s: float, lease_s: float = LEASE_S) -> None:
        """Wait until nobody else writes ``path``; after ``timeout_s`` a ``UserError`` says who does."""
        self._path, self._lease_s = path, lease_s
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lease = SoftFileLease(
            path.with_name(f".{path.name}.writer"), lease_duration=lease_s, timeout=0, thread_local=False
        )
        self._begin = time.monotonic()
        advice = f"it is taken over when it has ended or nothing was heard of it for {lease_s:.0f} s"
        with naming(path):
            wait_for(str(path), self._acquired, lambda: f"{self._writer()}; {advice}", timeout_s)

    def _acquired(self) -> bool | None:
        before = self._writer()
        try:
            self._lease.acquire()
        except Timeout:
            if time.monotonic() - self._begin >= self._lease_s and self._is_empty():
                # Its writer was killed before it wrote its name, so nobody can ask whether it lives.
                self._lease.break_lock()
            return None
        if before:
            print(printed(f"took over {self._path}: {before} and is gone"), file=sys.stderr, flush=True)
        return True

    def _is_empty(self) -> bool:
        try:
            return Path(self._lease.lock_file).stat().st_size == 0
        except FileNotFoundError:
            return False

    def _writer(self) -> str:
        """Who holds the claim, as far as it is known; empty if nobody does."""
        if owner := self._lease.owner:
            return f"written by process {owner.pid} of {owner.hostname}"
        lock = self._lease.lock_file
        return f"written by a process that left no name (delete {lock} if it has ended)" if Path(lock).exists() else ""

    def check(self) -> None:
        """Raise a ``UserError`` if another process took over since."""
        owner = self._lease.owner
        if owner is None or owner.token != self._lease.token:
            raise UserError(
                f"{self._path}: {self._writer() or 'the claim to write it was removed'}, since this process "
                f"gave no sign for {self._lease_s:.0f} s; what it measured up to then is in the file, run again"
            )

    def release(self) -> None:
        """Let the next one write; a claim that another process took over stays with it."""
        self._lease.release()
