"""``tileseer verify``: check that files are intact, and that kernels of a library compute correctly."""

import argparse
from dataclasses import asdict
from pathlib import Path

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
    options.add_json(parser)
    parser.epilog = (
        "Files are checked by seals, hashes, columns and feature lists; a dataset of a folder of results is put "
        "together again from its journals. A kernel's output is compared, in a poisoned buffer, with a reference "
        "computed on the same device. Exit status 1: something is wrong. " + str(parser.epilog)
    )


def run(args: argparse.Namespace) -> int:
    """Print a line a check; return 1 if one failed."""
    if args.path.suffix in LIBRARIES:
        return _kernels(args)
    if args.driver:
        raise UserError(f"--driver is for libraries of kernels ({', '.join(LIBRARIES)}); {args.path} is none")
    # What reads models takes a second to import.
    from tileseer.client import verification

    found = verification.check(args.path, args.config)
    failed = sum(not check.ok for check in found)
    lines = [f"{'ok  ' if check.ok else 'FAIL'}  {check.subject}: {check.said}" for check in found]
    content = {"device": None, "checks": [asdict(check) for check in found], "failed": failed}
    options.answer(args, content, [*lines, f"{len(found)} checks, {failed} failed"])
    return int(failed > 0)


def _kernels(args: argparse.Namespace) -> int:
    from tileseer.devices.harness import library_check

    if args.driver is None:
        raise UserError(f"{args.path}: add --driver DRIVER, which runs the kernels (docs/benchmarking.md)")
    problem = options.problem(args)
    device, found = library_check.verify(args.driver, args.path, problem, args.split_k)
    failed = sum(row.status != "ok" for row in found)
    lines = [f"{'ok  ' if row.status == 'ok' else 'FAIL'}  {row.kernel}: {row.said}" for row in found]
    content = {"device": device, "checks": [asdict(row) for row in found], "failed": failed}
    options.answer(
        args, content, [*lines, f"{len(found)} kernels that support the problem, {failed} failed, on {device}"]
    )
    return int(failed > 0 or not found)
