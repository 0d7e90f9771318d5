"""``tileseer codegen``: list or emit the kernels of a rule set."""

import argparse
import sys
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.places import find_file
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.operations import BUILDER_SETS, DTYPES, RULE_SETS, VARIANTS
from tileseer.libraries.emitted_folder import emit_folder
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.enumeration import LISTED_COLUMNS, NDIMS, REQUESTED_VARIANTS, ListedKernel
from tileseer.libraries.registry import examples, library_of_arch
from tileseer.libraries.rule_sets import RuleSet, check_flags

AT_LEVEL = "lacks", "one_slice"
"""Columns of a list that the level of the API decides, named as in ``config/ck_api.yaml``."""
EMITTED = (
    "{arch}: {kernels} kernels, {left_out_by_a_flag} left out by a flag, {not_in_the_api_level} not in the API level; "
    "{files} files in {folder}, {files_written} written, {files_removed} removed"
)
EXAMPLES = (
    "tileseer codegen --arch gfx950 --rule-set tiny --list-names",
    "tileseer codegen --arch gfx950 gfx942 --rule-set full --variant forward --ndim 2 --output out",
    *examples("codegen"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = parser.add_argument_group("what to do (one of these)").add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=options.folder_output, metavar="DIR", help="emit C++ into DIR/ARCH")
    what.add_argument("--list-names", action="store_true", help="print the unique kernel names, sorted")
    what.add_argument("--list-configs", action="store_true", help="print each kernel with filter verdict and flags")

    which = parser.add_argument_group("which kernels")
    which.add_argument("--arch", nargs="+", required=True, metavar="ARCH", help="GPU targets, for example gfx950")
    meaning = f"{', '.join(RULE_SETS)}, or the path of a table of rules (default: default)"
    which.add_argument("--rule-set", default="default", metavar="SET", help=meaning)
    which.add_argument("--variant", nargs="+", choices=REQUESTED_VARIANTS, help="directions (default: all three)")
    which.add_argument("--ndim", nargs="+", type=int, choices=NDIMS, help="dimensions (default: 2 3)")
    which.add_argument("--dtype", nargs="+", choices=DTYPES, help="data types (default: all three)")
    meaning = "emit kernels with these flags as well; all for every flag"
    which.add_argument("--include-flagged", nargs="+", default=[], metavar="FLAG", help=meaning)

    how = parser.add_argument_group("how")
    options.add_tables(how)
    meaning = "level of the library's API (default: the newest); with --list-names only kernels that it has"
    how.add_argument("--ck-api", metavar="LEVEL", help=meaning)
    how.add_argument("--ck-root", type=Path, metavar="DIR", help="Composable Kernel checkout, for profiler and tests")
    parser.epilog = "One request: full-tests and tiny are drawn from all that is requested together."


def run(args: argparse.Namespace) -> int:
    """List or emit the kernels of the request."""
    _check(args)
    if args.output:
        results = [_emit(args, arch, args.output / arch) for arch in args.arch]
        return options.answer(args, {"archs": results}, (EMITTED.format(**result) for result in results))
    kernels = [(arch, kernel) for arch in args.arch for kernel in _requested_kernels(args, arch)]
    if not kernels:
        print(f"{args.rule_set} has no such kernel on {' '.join(args.arch)}", file=sys.stderr)
    emitters = {arch: _emitter(args, arch) for arch in args.arch}
    if args.list_names:
        names = sorted(
            {
                kernel.name
                for arch, kernel in kernels
                if not (args.ck_api and emitters[arch].lack(kernel.kernel.built_as, arch))
            }
        )
        return options.answer(args, {"names": names}, names)
    records = [kernel.record(arch) | _at_level(kernel, arch, emitters[arch]) for arch, kernel in kernels]
    columns = (*LISTED_COLUMNS, *AT_LEVEL)
    rows = ([record[column] for column in columns] for record in records)
    return options.answer(args, {"configs": records}, map("\t".join, [columns, *rows]))


def _emitter(args: argparse.Namespace, arch: str) -> Emitter:
    library = library_of_arch(arch)
    emitter = library.made_here(library.emitter)
    return emitter(find_file(Path("workflow/templates")), find_file(args.config / "ck_api.yaml"), args.ck_api or "")


def _at_level(kernel: ListedKernel, arch: str, emitter: Emitter) -> dict[str, str]:
    """Say why the API level lacks a kernel, and why it runs only with split-K 1; each empty if it does not."""
    own = kernel.kernel.built_as
    return dict(zip(AT_LEVEL, (emitter.lack(own, arch), emitter.only_one_slice(own)), strict=True))


def _check(args: argparse.Namespace) -> None:
    """Raise a ``UserError`` for options that are missing, contradict each other, or would have no effect."""
    if args.include_flagged and not args.output:
        raise UserError("--include-flagged is for --output")
    if joined := next((arch for arch in args.arch if "," in arch), ""):
        raise UserError(f"--arch: separate archs by blanks: --arch {' '.join(joined.split(','))}")
    if len(set(args.arch)) != len(args.arch):
        raise UserError(f"an arch is given twice in {' '.join(args.arch)}")
    others = ", ".join(arch for arch in args.arch if args.ck_api and not _emitter(args, arch).levels)
    if others:
        raise UserError(f"--ck-api: the library of {others} has no levels; leave it out")
    if args.ck_root and args.rule_set not in BUILDER_SETS:
        raise UserError(f"--ck-root is for the rule sets {' and '.join(BUILDER_SETS)}")


def _requested_kernels(args: argparse.Namespace, arch: str) -> list[ListedKernel]:
    specs = ArchSpecs.load(find_file(args.config / "arch_specs.json"))
    rule_set = RuleSet(args.rule_set, find_file(args.config / "rule_sets"), args.ck_root, specs)
    return rule_set.list_kernels(arch, args.variant or VARIANTS, args.ndim or (2, 3), args.dtype or DTYPES)


def _emit(args: argparse.Namespace, arch: str, folder: Path) -> dict[str, Any]:
    """Emit the kernels of one arch; return what ``--json`` prints of it."""
    check_flags(args.include_flagged)
    kernels = _requested_kernels(args, arch)
    left_out = [kernel for kernel in kernels if not kernel.is_built(args.include_flagged)]
    chosen = [kernel.kernel.built_as for kernel in kernels if kernel.is_built(args.include_flagged)]
    built = {kernel.name: kernel for kernel in chosen}
    if not built:
        raise UserError(f"{args.rule_set}: no kernel to emit for {arch} ({len(left_out)} are flagged)")
    emitter = _emitter(args, arch)
    emitted = [built[name] for name in sorted(built) if not emitter.lack(built[name], arch)]
    if not emitted:
        raise UserError(f"{args.rule_set}: the level {args.ck_api} of the CK Tile API has none of {len(built)} kernels")
    files = emit_folder(folder, emitted, arch, emitter)
    left_out_of = {"left_out_by_a_flag": len(left_out), "not_in_the_api_level": len(built) - len(emitted)}
    return {"arch": arch, "folder": folder, "kernels": len(emitted), **left_out_of, **files}
