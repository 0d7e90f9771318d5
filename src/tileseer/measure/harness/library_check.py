"""Which kernels of a library can run a problem, and whether they compute what the reference of the driver does."""

from pathlib import Path
from typing import Any

from tileseer.config.benchmark import Timing
from tileseer.core.progress import Progress
from tileseer.measure.harness.supervisor import Request, Supervisor, launch_options, problem_numbers
from tileseer.problems.problem import Problem


def check_library(driver: Path, module: Path, problem: Problem, split_k: int) -> tuple[str, list[dict[str, Any]]]:
    """Name of the device, and a record of each kernel of a library that supports the problem.

    ``status`` is one of ``measure.device.STATUSES``, or ``race`` on an emulated GPU; ``elements`` of the output were
    compared, and ``worst`` is the largest error, in tolerances, which grow with the length of the reduction.
    ``UserError`` where the driver or the library cannot be loaded.
    """
    modules = (str(module.absolute()),)
    numbers = problem_numbers(vars(problem), problem.variant, split_k)
    with Supervisor(str(driver.absolute())) as supervisor:
        device = supervisor.device()
        checks = []
        names = supervisor.supporting(modules, numbers)
        with Progress("verify", len(names), "kernels") as progress:
            for name in names:
                outcome = supervisor.measure(Request(modules, name, numbers, launch_options(Timing())))
                check = outcome.reply.get("check") or {}
                elements, worst = int(check.get("elements", 0)), check.get("worst")
                message = outcome.error or f"{elements} elements right, the worst at {worst:.3g} of its tolerance"
                record = {
                    "kernel": name,
                    "status": outcome.status,
                    "said": message,
                    "elements": elements,
                    "worst": worst,
                }
                checks.append(record)
                progress.add(failed=int(outcome.status != "ok"))
    return f"{device['name']} ({device['backend']})", checks
