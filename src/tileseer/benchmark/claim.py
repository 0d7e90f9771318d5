"""One writer a journal: a claim beside the file, which holds between machines that share the folder.

The lock of a device ends at its machine, and a shared file system may lose the locks of a machine that it does not
reach. So who writes a journal leaves a file that says who it is, and touches it every few seconds. The claim of a
process of this machine that has ended is taken over at once; that of another machine when it was not renewed for
``LEASE_S``. Who was taken for dead and lives writes nothing any more.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from filelock import SoftFileLease, Timeout

from tileseer.core.atomic import naming
from tileseer.core.errors import UserError

LEASE_S = 30.0
"""As long as this nothing is heard of a process before it is taken for dead; measured on the clock of who waits."""
POLL_S = 0.2
REPORT_EVERY_S = 30.0


class Claim:
    """The right to write a file, held until ``release`` or the end of the process."""

    def __init__(self, path: Path, timeout_s: float, lease_s: float = LEASE_S) -> None:
        """Wait until nobody else writes ``path``; after ``timeout_s`` a ``UserError`` says who does."""
        self._path, self._lease_s = path, lease_s
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lease = SoftFileLease(
            path.with_name(f".{path.name}.writer"), lease_duration=lease_s, timeout=0, thread_local=False
        )
        with naming(path):
            self._acquire(timeout_s)

    def _acquire(self, timeout_s: float) -> None:
        start = time.monotonic()
        report = start
        while True:
            before = self._writer()
            try:
                self._lease.acquire()
            except Timeout:
                pass
            else:
                if before:
                    print(f"took over {self._path}: {before} and is gone", file=sys.stderr, flush=True)
                return
            waited = time.monotonic() - start
            if waited >= timeout_s:
                raise UserError(
                    f"{self._path} was busy for {waited:.0f} s: {before}; wait for it, end it, or raise lock.timeout_s"
                )
            if time.monotonic() >= report:
                print(
                    f"waiting for {self._path} since {waited:.0f} s: {before}; "
                    f"it is taken over when it has ended or nothing was heard of it for {self._lease_s:.0f} s",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                report = time.monotonic() + REPORT_EVERY_S
            if waited >= self._lease_s and self._is_empty():
                # Its writer was killed before it had said who it is, so nobody can ask whether it lives.
                self._lease.break_lock()
            time.sleep(min(POLL_S, timeout_s - waited))

    def _is_empty(self) -> bool:
        try:
            return Path(self._lease.lock_file).stat().st_size == 0
        except FileNotFoundError:
            return False

    def _writer(self) -> str:
        """Return who holds the claim, as far as it is known; empty if nobody does."""
        if owner := self._lease.owner:
            return f"written by process {owner.pid} of {owner.hostname}"
        return "written by a process that left no name" if Path(self._lease.lock_file).exists() else ""

    def check(self) -> None:
        """Raise a ``UserError`` if another process took over since."""
        owner = self._lease.owner
        if owner is None or owner.token != self._lease.token:
            raise UserError(
                f"{self._path}: {self._writer() or 'the claim to write it was removed'}, since nothing was heard of "
                f"this process for {self._lease_s:.0f} s; what it measured up to then is in the file, run again"
            )

    def release(self) -> None:
        """Let the next one write; a claim that another process took over stays with it."""
        self._lease.release()
