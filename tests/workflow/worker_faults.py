"""Kills of the workers that measure on a GPU, for the fault suite: the pair in flight is measured by a new worker.

There is no GPU here: the measuring driver is built for the host, and so are the kernels, right and wrong ones
(tests/bench). The supervisor is that of a benchmark. A kill has to leave every pair with the status that it has
undisturbed, whether it came in a pair or between two.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from fault_injection import NOT_INJECTED, Suite
from small_workflow import ROOT

from tileseer.measure.harness.supervisor import Supervisor, WorkerLimits

sys.path += [str(ROOT / "tests/builders"), str(ROOT / "tests/measure")]
import host_library
from test_supervisor import request

FAULT = "kill -9 of a worker that measures"
KERNELS = ("good", "wrong", "good_bwd_data", "throws", "good_bwd_weight", "good")


def kill_workers(suite: Suite, number: int, folder: Path) -> None:
    """Kill the worker of a supervisor at a random moment of a row of pairs."""
    libraries: tuple[str, str] | None = None
    for draw in suite.cases("kill of a worker", number):
        if host_library.COMPILER is None:
            suite.count(FAULT, NOT_INJECTED, "")
            continue
        if libraries is None:
            libraries = host_library.build(folder)
            begin = time.monotonic()
            undisturbed, _ = measured(libraries, None)
            seconds = time.monotonic() - begin
        hit = False
        while not hit:
            found, hit = measured(libraries, draw.uniform(0, seconds))
        suite.count(FAULT, "recovered" if found == undisturbed else "lost", f"{found} instead of {undisturbed}")


def measured(libraries: tuple[str, str], kill_after_s: float | None) -> tuple[list[str], bool]:
    """Return the statuses of a row of pairs, and whether a worker was there to be killed at the moment."""
    hits: list[int] = []
    with Supervisor(libraries[0], limits=WorkerLimits(pair_s=30.0)) as supervisor:

        def kill() -> None:
            for pid in supervisor.pids:
                os.kill(pid, signal.SIGKILL)
                hits.append(pid)

        timer = threading.Timer(kill_after_s or 0.0, kill)
        if kill_after_s is not None:
            timer.start()
        statuses = [supervisor.measure(request(libraries, kernel)).status for kernel in KERNELS]
        timer.cancel()
        if kill_after_s is not None:
            timer.join()
    return statuses, bool(hits)
