"""The parent's end of a worker process: ask, wait with a limit, report how it ended."""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from tileseer.core import atomic
from tileseer.core.errors import UserError
from tileseer.measure.harness import abi

PRINTED_TAIL = 2000
"""Characters of what a worker printed that a fault report may quote."""
KILL_WAIT_S = 30.0
MEMORY_MIB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 >> 20
"""What a worker may take: half of the machine's memory."""


class Fault(Exception):
    """A worker that did not answer: ``kind`` is ``crash`` or ``run_timeout``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A running worker. The first request that needs the GPU is the first that touches it."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, memory_mib: int = MEMORY_MIB, lock: int | None = None
    ) -> None:
        receive, send = os.pipe()
        self._token = secrets.token_hex(16)
        self.pid: int | None = None
        """Process number, after the first answer."""
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tileseer.measure.harness.worker", str(send), self._token, str(memory_mib)],
                stdin=subprocess.PIPE,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                pass_fds=(send,) if lock is None else (send, lock),
                env={**os.environ, **(environment or {}), "PYTHONFAULTHANDLER": ""},
                start_new_session=True,
            )
        finally:
            os.close(send)
        self._receive = receive
        os.set_blocking(receive, False)
        self._poll = select.poll()
        self._poll.register(receive, select.POLLIN)
        self._pending = b""
        self._phase = "start"

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Answer to a request; after a ``Fault`` the worker is gone."""
        self._phase = "start"
        deadline = time.monotonic() + limit_s
        try:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write((json.dumps(request) + "\n").encode())
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._died() from None
            while True:
                reply = self._reply(deadline, limit_s)
                if "done" in reply:
                    return dict(reply["done"])
                self._phase = str(reply["phase"])
        except BaseException:
            self.close()
            raise

    def _reply(self, deadline: float, limit_s: float) -> dict[str, Any]:
        line = self._line(deadline, limit_s)
        try:
            reply = json.loads(line)
            if not isinstance(reply, dict) or reply.get("token") != self._token:
                raise ValueError("it does not have the token of this worker")
            pid, self.pid = self.pid, reply["pid"]
        except ValueError as error:
            text = f"the worker sent no reply but {line[:80]!r} ({error})"
            raise Fault("crash", text) from None
        if pid is None:
            # It has loaded its code.
            atomic.refuse_changes.get()()
        return reply

    def _line(self, deadline: float, limit_s: float) -> bytes:
        while b"\n" not in self._pending:
            if not self._poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                raise Fault("run_timeout", f"no answer after {limit_s:g} s in phase {self._phase}")
            part = os.read(self._receive, 1 << 16)
            if not part:
                raise self._died()
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self) -> Fault:
        self._process.wait(KILL_WAIT_S)
        ended_by = abs(self._process.returncode) % abi.SIGNAL_BASE
        is_signal = self._process.returncode < 0 or self._process.returncode > abi.SIGNAL_BASE
        how = signal.Signals(ended_by).name if is_signal else f"exit status {ended_by}"
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - PRINTED_TAIL))
        printed = self._printed.read().decode(errors="backslashreplace").strip().splitlines()
        last = f": {printed[-1][:200]}" if printed else ""
        return Fault("crash", f"{how} in phase {self._phase}{last}")

    def close(self) -> None:
        """End the worker with all that it started."""
        if self._receive < 0:
            return
        assert self._process.stdin is not None
        # The pipe is broken if a request was never read.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"process {self.pid} hangs in the GPU driver and cannot be killed; reset the GPU, then run again"
            ) from None
        os.close(self._receive)
        self._printed.close()
        self._receive = -1
