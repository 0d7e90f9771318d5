"""``tileseer import find-db``: a recording of what MIOpen measured."""

import argparse
import os
import re
from pathlib import Path

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, shown
from tileseer.core.places import find_file
from tileseer.facts import hardware
from tileseer.facts.hardware import Hardware
from tileseer.facts.names import ARCH_PATTERN, arch_hint
from tileseer.facts.section import PATH_PATTERN
from tileseer.libraries.miopen import recording
from tileseer.libraries.miopen.find_db import FileGpu, FileName
from tileseer.libraries.miopen.library import MIOPEN
from tileseer.libraries.miopen.solvers import Release, in_words, release_of
from tileseer.libraries.registry import library_of_arch

SUMMARY = "MIOpen's databases of measured solvers, of ROCm or of a user"
EXAMPLES = ("tileseer import find-db gfx942130.HIP.fdb.txt.bz2 --arch gfx942 --output config/recorded/mine",)
TABLE = "hardware.yaml"


def configure(own: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    own.add_argument("files", nargs="+", type=Path, metavar="FILE", help="*.fdb.txt, *.fdb.txt.bz2 or *.ufdb.txt")
    meaning = "GPU target that was measured, such as gfx942, or what to call its models, such as gfx942_cpx_miopen"
    own.add_argument("--arch", required=True, help=meaning)
    own.add_argument(
        "--output", required=True, type=options.folder_output, metavar="DIR", help="new folder for the recording"
    )
    meaning = "product of config/hardware.yaml (default: that of the compute units in the files' names)"
    own.add_argument("--device", help=meaning)
    meaning = (
        "MIOpen's version, such as 3.5.2 (default: of the names of a user's files; export writes for this one alone)"
    )
    own.add_argument("--release", default="", metavar="VERSION", help=meaning)
    options.add_tables(own)


def run(args: argparse.Namespace) -> int:
    """Write the recording and tell how to replay it."""
    folder = os.path.relpath(args.output)
    if not re.fullmatch(PATH_PATTERN, folder):
        raise UserError(f"--output: {args.output}: a configuration names it: take letters, digits and _ . / + - alone")
    if missing := next((path for path in args.files if not path.exists()), None):
        raise UserError(
            f"{missing}: there is no such file; find-dbs are in share/miopen/db of ROCm and ~/.config/miopen"
        )
    if not args.arch.startswith("gfx"):
        raise UserError(f"--arch: {shown(args.arch)} is no target of a GPU; {arch_hint(args.arch)}")
    gpu, table = hardware.target(args.arch), find_file(args.config / TABLE)
    products = hardware.read_products(table)
    product = _product(args, products, recording.gpu_of_files(args.files, gpu))
    arch = _arch(args, product)
    release = _release(args)
    taken = recording.taken_with(release)
    database = recording.read_find_dbs(args.files, release)
    source = {"source": f"MIOpen find-db: {recording.digests(args.files)}"}
    written = recording.write_solver_recording(args.output, database, arch, product.name, source, taken)
    is_new = product.name not in products
    if is_new:
        write_text(args.output / TABLE, hardware.table_with(table, [product]))
    content = {
        "recording": args.output,
        "arch": arch,
        "device": product.name,
        "operations": written.operations,
        "problems": database.times["problem"].nunique(),
        "times": len(database.times),
        "refused": database.reasons(),
    }
    most = int(database.problems[recording.OPERATION_COLUMNS].value_counts().max())
    few = f"few to train: {most} problems of one operation, where {recording.FEWEST_PROBLEMS} make figures say anything"
    lines = [
        f"{args.output}: {len(database.times):,} times of {content['problems']:,} problems, "
        f"{len(written.operations)} models, on {product.name} ({product.compute_units} compute units)",
        *options.taken_lines(taken),
        *(f"refused {count:,}: {reason}" for reason, count in database.reasons().items()),
        *([few] if most < recording.FEWEST_PROBLEMS else []),
        f"every refused entry is in {args.output / recording.REFUSED}; to train, write into the config:",
        f"  arch: {arch}",
        f"  replays: {{{arch}: {folder}}}",
        f"  benchmark: {{products: {{{arch}: {product.name}}}}}",
        *([f"  hardware: {folder}/{TABLE}  # with {product.name}, whose figures are assumed"] if is_new else []),
        f"and run: snakemake --cores all results/models/{arch}",
    ]
    return options.answer(args, content, lines)


def _release(args: argparse.Namespace) -> Release:
    """Return MIOpen's version, as far as ``--release`` or the files' names have it; ``UserError`` if these differ."""
    named = {FileName.parse(path).release for path in args.files if FileName.is_one(path)}
    releases = {release_of(args.release)} if args.release else named
    is_version = not args.release or re.match(r"[0-9]+([._][0-9]+){1,2}([._][0-9a-f]{6,40})?$", args.release)
    if len(releases) > 1 or not is_version:
        versions = ", ".join(map(in_words, sorted(releases))) if is_version else shown(args.release)
        raise UserError(f"--release: {versions}: give the one version of MIOpen that measured, such as 3.5.2")
    return releases.pop() if releases else ()


def _product(args: argparse.Namespace, products: dict[str, Hardware], named: FileGpu | None) -> Hardware:
    """Return the product that was measured: that of ``--device``, of the files' names, or the usual one of the arch."""
    gpu = hardware.target(args.arch)
    name = args.device or recording.usual_product(args.arch, gpu)
    if named and not args.device:
        return recording.product_of_units(products, args.arch, named.compute_units)
    if name is None:
        hint = arch_hint(gpu)
        raise UserError(f"--arch: benchmark.products has no product for {gpu} ({hint}); name one with --device")
    product = hardware.read_hardware(find_file(args.config / TABLE), name)
    if product.arch != gpu:
        raise UserError(f"--device: {name} is a {product.arch}, but --arch is {gpu}")
    if named and product.compute_units != named.compute_units:
        raise UserError(
            f"--device: {name} has {product.compute_units} compute units, but the files are named after a GPU "
            f"with {named.compute_units}; leave it out"
        )
    return product


def _arch(args: argparse.Namespace, product: Hardware) -> str:
    """Return the arch of the models: the one that was asked for; ``UserError`` if its kernels are not MIOpen's.

    For a target alone it is that of the shipped models if the GPU is theirs, else one with the compute units.
    """
    asked, gpu = args.arch, hardware.target(args.arch)
    if asked == gpu:
        units = (
            "" if args.device or recording.usual_product(asked, gpu) == product.name else f"_{product.compute_units}"
        )
        return f"{gpu}{units}_{MIOPEN.name}"
    if not re.fullmatch(ARCH_PATTERN, asked) or library_of_arch(asked) is not MIOPEN:
        raise UserError(f"--arch {asked}: give a target, such as {gpu}, or a name such as {gpu}_mine_{MIOPEN.name}")
    return asked
