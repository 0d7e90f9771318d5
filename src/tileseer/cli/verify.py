"""``tileseer verify``: check that files are intact, and that kernels of a library compute correctly."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.facts.benchmark import Timing
from tileseer.measure.device import refuse_unless_emulated

EXAMPLES = (
    "tileseer verify results",
    "tileseer verify results/models/gfx950",
    "tileseer verify results/datasets/gfx950/forward_bf16 --json",
    "tileseer verify config/recorded/sm_90",
    "tileseer verify kernels.txt --emulate --arch gfx942",
    "tileseer verify kernels.txt --emulate --arch gfx950 --sample 8 --quick",
    "tileseer verify kernels.so --driver driver.so --variant bwd_weight --problem N=1,C=16,K=16,Hi=9,Wi=9,Y=3,X=3",
)
LIBRARY_SUFFIXES = (".so", ".hsaco")
Checked = tuple[bool, str, dict[str, Any]]
"""Whether a thing is as it has to be, its name, and all that is known of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    meaning = "model directory, dataset, recording, folder of results, library or list of kernels"
    parser.add_argument("path", type=Path, metavar="PATH", help=meaning)
    options.add_tables(parser)
    parser.add_argument("--driver", type=Path, help="measuring driver: runs the kernels of a library on its device")
    parser.add_argument("--split-k", type=options.positive, default=1, help="of a library's kernels (default: 1)")
    options.add_problem(parser)
    emulated = parser.add_argument_group("kernels on an emulated GPU")
    meaning = "compile the kernels of a list of names, and execute their machine code on the CPU"
    emulated.add_argument("--emulate", action="store_true", help=meaning)
    emulated.add_argument("--arch", default="gfx950", help="GPU target (default: gfx950)")
    emulated.add_argument("--sample", type=options.positive, metavar="N", help="only N kernels")
    emulated.add_argument(
        "--quick", action="store_true", help="every instance of a kernel with grids of many tiles alone"
    )
    emulated.add_argument("--jobs", type=options.positive, default=1, help="processes (default: 1)")
    parser.epilog = (
        "Files are checked by hashes, columns and feature lists. A kernel's output is compared, in a poisoned "
        "buffer, with a reference computed on the same device. Exit status 1: something is wrong. " + str(parser.epilog)
    )


def run(args: argparse.Namespace) -> int:
    """Print a line a check; return 1 if one failed."""
    if args.emulate:
        refuse_unless_emulated(args.arch)
        from tileseer_emulated import command

        return command.verify(args)
    device, checks = (_kernels if args.path.suffix in LIBRARY_SUFFIXES else _files)(args)
    wrong = sum(not ok for ok, _, _ in checks)
    lines = [f"{'ok  ' if ok else 'FAIL'}  {subject}: {record['said']}" for ok, subject, record in checks]
    content = {"device": device, "checks": [record for _, _, record in checks], "failed": wrong}
    where = f"kernels that support the problem, {wrong} failed, on {device}" if device else f"checks, {wrong} failed"
    return options.answer(args, content, [*lines, f"{len(checks)} {where}"], wrong > 0 or not checks)


def _files(args: argparse.Namespace) -> tuple[None, list[Checked]]:
    if given := next((name for name in ("driver", "problem", "variant", "dtype") if getattr(args, name)), ""):
        raise UserError(f"--{given} is for libraries of kernels ({', '.join(LIBRARY_SUFFIXES)}); {args.path} is none")
    if given := next((name for name in ("sample", "quick") if getattr(args, name)), ""):
        raise UserError(f"--{given} is for kernels that --emulate executes; add it, or leave --{given} out")
    # What reads models takes a second to import.
    from tileseer.serve import verification

    return None, [(check.ok, check.subject, asdict(check)) for check in verification.check_path(args.path)]


def _kernels(args: argparse.Namespace) -> tuple[str, list[Checked]]:
    """Return the name of the device, and a check of each kernel of a library that supports the problem.

    ``worst`` is the largest error of the output, in tolerances, which grow with the length of the reduction.
    """
    from tileseer.measure.harness.supervisor import Request, Supervisor, launch_options, problem_numbers

    if args.driver is None:
        raise UserError(f"{args.path}: add --driver DRIVER, which runs the kernels (docs/internals/measuring.md)")
    problem, modules = options.problem(args), (str(args.path.absolute()),)
    numbers = problem_numbers(vars(problem), problem.variant, args.split_k)
    checks: list[Checked] = []
    with Supervisor(str(args.driver.absolute())) as supervisor:
        device = supervisor.device()
        names = supervisor.supporting(modules, numbers)
        with Progress("verify", len(names), "kernels") as progress:
            for name in names:
                outcome = supervisor.measure(Request(modules, name, numbers, launch_options(Timing())))
                check = outcome.reply.get("check") or {}
                elements, worst = int(check.get("elements", 0)), check.get("worst")
                said = outcome.error or f"{elements} elements right, the worst at {worst:.3g} of its tolerance"
                record = {"kernel": name, "status": outcome.status, "said": said, "elements": elements, "worst": worst}
                checks.append((outcome.status == "ok", name, record))
                progress.add(failed=int(outcome.status != "ok"))
    return f"{device['name']} ({device['backend']})", checks
