"""``tileseer verify``: check that files are intact, and that kernels of a library compute correctly."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.errors import UserError

EXAMPLES = (
    "tileseer verify results",
    "tileseer verify results/models/gfx950",
    "tileseer verify results/datasets/gfx950/forward_bf16.parquet --json",
    "tileseer verify config/recorded/sm_90",
    "tileseer verify kernels.so --driver driver.so --variant bwd_weight --problem N=1,C=16,K=16,Hi=9,Wi=9,Y=3,X=3",
)
LIBRARIES = (".so", ".hsaco")
Checked = tuple[bool, str, dict[str, Any]]
"""Whether a thing is as it has to be, its name, and all that is known of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "path", type=Path, metavar="PATH",
        help="model directory, dataset, recording, folder of results, sealed file, or a library of kernels",
    )  # fmt: skip
    options.add_tables(parser)
    parser.add_argument(
        "--driver", type=Path, help="measuring driver, for a library of kernels: runs them on its device"
    )
    parser.add_argument("--split-k", type=options.positive, default=1, help="of a library's kernels (default: 1)")
    options.add_problem(parser)
    parser.epilog = (
        "Files are checked by seals, hashes, columns and feature lists; a dataset of a folder of results is put "
        "together again from its journals. A kernel's output is compared, in a poisoned buffer, with a reference "
        "computed on the same device. Exit status 1: something is wrong. " + str(parser.epilog)
    )


def run(args: argparse.Namespace) -> int:
    """Print a line a check; return 1 if one failed."""
    device, found = (_kernels if args.path.suffix in LIBRARIES else _files)(args)
    wrong = sum(not ok for ok, _, _ in found)
    lines = [f"{'ok  ' if ok else 'FAIL'}  {subject}: {record['said']}" for ok, subject, record in found]
    content = {"device": device, "checks": [record for _, _, record in found], "failed": wrong}
    where = f"kernels that support the problem, {wrong} failed, on {device}" if device else f"checks, {wrong} failed"
    return options.answer(args, content, [*lines, f"{len(found)} {where}"], wrong > 0 or not found)


def _files(args: argparse.Namespace) -> tuple[None, list[Checked]]:
    if args.driver:
        raise UserError(f"--driver is for libraries of kernels ({', '.join(LIBRARIES)}); {args.path} is none")
    # What reads models takes a second to import.
    from tileseer.client import verification

    return None, [(check.ok, check.subject, asdict(check)) for check in verification.check(args.path, args.config)]


def _kernels(args: argparse.Namespace) -> tuple[str, list[Checked]]:
    from tileseer.devices.harness import library_check

    if args.driver is None:
        raise UserError(f"{args.path}: add --driver DRIVER, which runs the kernels (docs/benchmarking.md)")
    device, found = library_check.verify(args.driver, args.path, options.problem(args), args.split_k)
    return device, [(row.status == "ok", row.kernel, asdict(row)) for row in found]
