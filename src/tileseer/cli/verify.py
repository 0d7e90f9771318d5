"""``tileseer verify``: check that files are intact, and that kernels of a library compute correctly."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core import draws
from tileseer.core.errors import UserError
from tileseer.core.places import find
from tileseer.core.progress import Progress
from tileseer.core.yaml_files import read_yaml
from tileseer.kernels.gemm_kernel import GemmKernel
from tileseer.kernels.registry import family_of_arch
from tileseer.measure.device import refuse_without_decoder
from tileseer.problems.operation import Operation

EXAMPLES = (
    "tileseer verify results",
    "tileseer verify results/models/gfx950",
    "tileseer verify results/datasets/gfx950/forward_bf16.parquet --json",
    "tileseer verify config/recorded/sm_90",
    "tileseer verify kernels.txt --emulate --arch gfx942",
    "tileseer verify --emulate --arch gfx950 --sample 8 --quick",
    "tileseer verify kernels.so --driver driver.so --variant bwd_weight --problem N=1,C=16,K=16,Hi=9,Wi=9,Y=3,X=3",
)
LIBRARIES = (".so", ".hsaco")
Checked = tuple[bool, str, dict[str, Any]]
"""Whether a thing is as it has to be, its name, and all that is known of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "path", type=Path, metavar="PATH", nargs="?",
        help="model directory, dataset, recording, folder of results, sealed file, library or list of kernels",
    )  # fmt: skip
    options.add_tables(parser)
    parser.add_argument(
        "--driver", type=Path, help="measuring driver, for a library of kernels: runs them on its device"
    )
    parser.add_argument(
        "--emulate", action="store_true",
        help="PATH is a list of kernel names: compile them and execute their machine code on the CPU; without PATH, "
        "the default pool",
    )  # fmt: skip
    parser.add_argument("--arch", default="gfx950", help="with --emulate: GPU target (default: gfx950)")
    parser.add_argument("--sample", type=options.positive, metavar="N", help="with --emulate: only N kernels")
    parser.add_argument("--quick", action="store_true", help="with --emulate: one tiny problem a kernel")
    parser.add_argument("--jobs", type=options.positive, default=1, help="with --emulate: processes (default: 1)")
    parser.add_argument("--split-k", type=options.positive, default=1, help="of a library's kernels (default: 1)")
    options.add_problem(parser)
    parser.epilog = (
        "Files are checked by seals, hashes, columns and feature lists. A kernel's output is compared, in a poisoned "
        "buffer, with a reference computed on the same device. Exit status 1: something is wrong. " + str(parser.epilog)
    )


def run(args: argparse.Namespace) -> int:
    """Print a line a check; return 1 if one failed."""
    if args.emulate:
        return _emulated(args)
    if args.path is None:
        raise UserError("which file or folder? add one, for example results")
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
    from tileseer.serve import verification

    return None, [(check.ok, check.subject, asdict(check)) for check in verification.check_path(args.path, args.config)]


def _emulated(args: argparse.Namespace) -> int:
    """Print a line a kernel of a list, executed on the emulated GPU; return 1 if one is not right."""
    refuse_without_decoder()
    from tileseer.compile import native
    from tileseer.gpus import hardware
    from tileseer.serve import emulation

    if args.path is None and args.sample is None:
        raise UserError("--emulate: which kernels? give a list of names, or --sample N for N of the default pool")
    names = _pool(args) if args.path is None else _list(args.path)
    if args.sample:
        # By the hash of the name: more kernels are the same ones and others.
        names = sorted(sorted(names, key=draws.of_name)[: args.sample])
    kernels = [_executable(name, args.arch) for name in names]
    workshop = emulation.Workshop(
        args.arch, find(args.config / "ck_api.yaml"), find(Path("workflow/templates")), find(native.SOURCES),
        hardware.product_of_arch(find(args.config / "hardware.yaml"), args.arch),
        {"compile": {"toolchain": family_of_arch(args.arch).toolchain}, "ck": {}, "cache": {}}, int(args.quick),
    )  # fmt: skip
    found = []
    with Progress("emulate", len(kernels), "kernels") as progress:
        for verdict in emulation.verdicts(workshop, kernels, args.jobs):
            found.append(verdict)
            progress.add(failed=int(verdict.status != "ok"))
    failed = sum(verdict.status not in ("ok", "unsupported") for verdict in found)
    lines = [
        f"{v.status:13} {v.kernel}: {v.right} problems right, {v.wrong} not, {v.instructions:,} instructions, "
        f"{v.issue_cycles:,} issue cycles" + (f"; {v.said}" if v.said else "")
        for v in found
    ]
    content = {"device": f"emulated {args.arch}", "checks": [asdict(v) for v in found], "failed": failed}
    lines.append(f"{len(found)} kernels executed on an emulated {args.arch}, {failed} failed")
    return options.answer(args, content, lines, failed > 0)


def _list(path: Path) -> list[str]:
    try:
        names = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no list of kernel names: {error}; write one name a line") from error
    if not names:
        raise UserError(f"{path}: the list is empty; write one kernel name a line")
    return names


def _pool(args: argparse.Namespace) -> list[str]:
    """Names of the candidates of a run with the config of the folder of tables."""
    from tileseer.config.config import check
    from tileseer.config.operations import OPERATIONS
    from tileseer.gpus.arch import ArchSpecs
    from tileseer.kernels.rule_sets import RuleSet

    path, folder = find(args.config / "config.yaml"), find(args.config / "rule_sets")
    config, specs = check(read_yaml(path), str(path)), ArchSpecs.load(find(args.config / "arch_specs.json"))
    rule_set = RuleSet(str(find(Path(config.configs.rule_set))), folder, config.ck.root, specs)
    names = []
    for word in config.operations or OPERATIONS:
        pool = rule_set.enumerate_kernels(args.arch, Operation.parse(word), config.configs)
        names += [kernel.name for kernel in pool.kernels]
    return names


def _executable(name: str, arch: str) -> GemmKernel:
    kernel = family_of_arch(arch).kernel.parse(name)
    if not isinstance(kernel, GemmKernel):
        raise UserError(f"{name}: only implicit-GEMM kernels are executed; leave it out of the list")
    return kernel


def _kernels(args: argparse.Namespace) -> tuple[str, list[Checked]]:
    from tileseer.measure.harness import library_check

    if args.driver is None:
        raise UserError(f"{args.path}: add --driver DRIVER, which runs the kernels (docs/gpu.md)")
    device, records = library_check.check_library(args.driver, args.path, options.problem(args), args.split_k)
    return device, [(record["status"] == "ok", record["kernel"], record) for record in records]
