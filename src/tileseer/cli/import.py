"""``tileseer import``: make a recording of measurements that others made."""

import argparse
from pathlib import Path

from tileseer.cli import options
from tileseer.config.config import Config
from tileseer.core.errors import UserError
from tileseer.dataset import find_db, solver_recording
from tileseer.gpus import hardware
from tileseer.kernels.libraries import library_of_arch

EXAMPLES = ("tileseer import find-db gfx942130.HIP.fdb.txt.bz2 --arch gfx942 --output config/recorded/mine",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="FORMAT")
    own = actions.add_parser("find-db", help="MIOpen's databases of measured solvers, of ROCm or of a user")
    own.add_argument("files", nargs="+", type=Path, metavar="FILE", help="*.fdb.txt, *.fdb.txt.bz2 or *.ufdb.txt")
    own.add_argument("--arch", required=True, help="GPU target that was measured, for example gfx942")
    own.add_argument("--output", required=True, type=Path, metavar="DIR", help="new folder for the recording")
    own.add_argument("--device", help="product of config/hardware.yaml (default: that of benchmark.products)")
    options.add_tables(own)


def run(args: argparse.Namespace) -> int:
    """Write the recording and tell how to replay it."""
    gpu = hardware.target(args.arch)
    arch = f"{gpu}_miopen"
    products = Config().benchmark.products
    device = args.device or products.get(arch) or products.get(gpu)
    if device is None:
        raise UserError(f"--arch: benchmark.products has no product for {gpu}; name one with --device")
    product = hardware.read_hardware(args.config / "hardware.yaml", device)
    if product.arch != gpu:
        raise UserError(f"--device: {device} is a {product.arch}, but --arch is {gpu}")
    solvers = library_of_arch(arch).kernel.choices["solver"]
    database = find_db.read_find_dbs(args.files, gpu, frozenset(solvers))
    source = {"source": f"MIOpen find-db: {solver_recording.digests(args.files)}"}
    recording = solver_recording.write_solver_recording(args.output, database, arch, device, source)
    content = {
        "recording": args.output,
        "arch": arch,
        "device": device,
        "operations": recording.operations,
        "problems": len({problem for problem, _ in database.times}),
        "times": len(database.times),
        "refused": database.reasons(),
    }
    lines = [
        f"{args.output}: {len(database.times):,} times of {content['problems']:,} problems, "
        f"{len(recording.operations)} models",
        *(f"refused {count:,}: {reason}" for reason, count in database.reasons().items()),
        f"every refused entry is in {args.output / solver_recording.REFUSED}; to train, write into the config:",
        f"  arch: {arch}",
        f"  replays: {{{arch}: {args.output}}}",
        f"  benchmark: {{products: {{{arch}: {device}}}}}",
        f"and run: snakemake --cores all results/models/{arch}",
    ]
    return options.answer(args, content, lines)
