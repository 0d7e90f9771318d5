#!/usr/bin/env python3
"""Check the measuring harness on a real NVIDIA GPU: its facts, and its way with broken kernels.

It builds the driver and the kernels of ``faulty_kernels.cu``, and prints

facts    what driver and vendor tool say of the GPU
faults   what becomes of kernels that are wrong, refuse, crash, corrupt the context or hang, and of their neighbours
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tileseer.build import modules
from tileseer.build.compiler import NATIVE_SOURCES
from tileseer.core.errors import reports_user_errors
from tileseer.facts.benchmark import Timing
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options
from tileseer.measure.harness.telemetry import boards

ROOT = Path(__file__).parents[2]
ARCH = "sm_90"
FAULTY = {
    "right": "ok",
    "one_wrong_element": "wrong_result",
    "one_element_not_finite": "wrong_result",
    "throws": "unsupported",
    "launch_refused": "unsupported",
    "segfault_on_the_host": "crash",
    "illegal_address": "crash",
    "stores_behind": "crash",
    "hangs": "run_timeout",
}
"""What the harness has to say of each kernel of ``faulty_kernels.cu``."""
PROBLEM = (8, 1, 64, 64, 1, 28, 28, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1)


def facts(driver: str) -> None:
    """Print what driver and tool say."""
    with Supervisor(driver) as supervisor:
        for field, value in supervisor.device().items():
            print(f"  {field:16} {value}")
    for board in boards("cuda"):
        print(f"  board {board.uuid}")
        print(f"  {board.read(())}")


def faults(driver: str, module: str) -> bool:
    """Measure the faulty kernels, a right one after each; return whether each got what it deserves."""
    options = launch_options(Timing())
    good = True
    print(f"{'kernel':24} {'status':13} {'seconds':>7}  the right kernel after it; what was said")
    with Supervisor(driver, limits=WorkerLimits(pair_s=5.0, kernel_faults=2)) as supervisor:
        for kernel, expected in [*FAULTY.items(), ("hangs", "run_timeout"), ("hangs", "skipped")]:
            begin = time.monotonic()
            outcome = supervisor.measure(Request((module,), kernel, PROBLEM, options))
            seconds = time.monotonic() - begin
            after = supervisor.measure(Request((module,), "right", PROBLEM, options))
            good &= outcome.status == expected and after.status == "ok"
            print(f"{kernel:24} {outcome.status:13} {seconds:7.2f}  {after.status}; {outcome.error}")
            for fault in outcome.faults:
                print(f"{'':47} {fault}")
    return good


@reports_user_errors
def main() -> int:
    """Build, check, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=Path, help="folder of what is built")
    work = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    sources = {
        "driver": ROOT / NATIVE_SOURCES / modules.DRIVER_SOURCE,
        "faulty": Path(__file__).with_name("faulty_kernels.cu"),
    }
    for name, source in sources.items():
        modules.run_command(
            modules.library_command("cuda", "nvcc", ARCH, [source], work / f"{name}.so", ROOT / NATIVE_SOURCES)
        )
    driver, faulty = (str((work / f"{name}.so").resolve()) for name in sources)
    facts(driver)
    good = faults(driver, faulty)
    print("every faulty kernel got the status it deserves" if good else "FAILED: see above")
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
