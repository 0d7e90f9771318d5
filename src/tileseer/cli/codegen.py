"""``tileseer codegen``: list, count or emit the kernels of a rule set, or emit one kernel given by its fields."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.places import find_file
from tileseer.core.progress import Progress
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.operations import BUILDER_SETS, DTYPES, RULE_SETS, TABLE_SETS, VARIANTS
from tileseer.libraries.ck_tile.flags import check_flags
from tileseer.libraries.ck_tile.library import CK_TILE
from tileseer.libraries.ck_tile.upstream import counts, emitted_folder, request
from tileseer.libraries.ck_tile.upstream.named import (
    LISTED_COLUMNS,
    Enumerator,
    ListedKernel,
    RuleTables,
    kernels_of_fields,
    list_kernels,
)
from tileseer.libraries.ck_tile.upstream.request import DEPTHWISE, NDIMS, REQUESTED_VARIANTS
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.registry import library_of_arch
from tileseer.libraries.rule_sets import RuleSet

DEFAULT_NDIMS = (2, 3)
DEFAULT_RULE_SET = "default"
DEFAULT_CHUNK_SIZE = 25
OPTIONS_OF_ONE_ACTION = {
    "--compare": "counts",
    "--chunk-size": "output",
    "--include-flagged": "output",
}
"""Options that the other actions would pass over."""
AT_LEVEL = "lacks", "one_slice"
"""Columns of a list that the level of the API decides, named as in ``config/ck_api.yaml``."""
EMITTED = (
    "{arch}: {kernels} kernels, {left_out_by_a_flag} left out by a flag, {not_in_the_api_level} not in the API level; "
    "{files} files in {folder}, {files_written} written, {files_removed} removed"
)
EXAMPLES = (
    "tileseer codegen --arch gfx950 --rule-set tiny --list-names",
    "tileseer codegen --arch gfx950 gfx942 --rule-set full --variant forward --ndim 2 --output out",
    "tileseer codegen --arch gfx950 --variant forward --ndim 2 --dtype bf16 --pipeline mem --tile-k 32 --output out",
    "tileseer codegen --arch sm_90 --rule-set config/rule_sets/cutlass.yaml --dtype bf16 --output out",
    "tileseer codegen --counts --arch gfx950 --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = parser.add_argument_group("what to do (one of these)").add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, metavar="DIR", help="emit C++ into DIR/ARCH")
    what.add_argument("--list-names", action="store_true", help="print the unique kernel names, sorted")
    what.add_argument("--list-configs", action="store_true", help="print each kernel with filter verdict and flags")
    what.add_argument("--counts", action="store_true", help="print how many kernels each cell has")

    which = parser.add_argument_group("which kernels")
    which.add_argument("--arch", nargs="+", metavar="ARCH", help="GPU targets, for example gfx950")
    meaning = f"{', '.join(RULE_SETS)}, or the path of a table of rules (default: {DEFAULT_RULE_SET})"
    which.add_argument("--rule-set", metavar="SET", help=meaning)
    which.add_argument("--variant", nargs="+", choices=REQUESTED_VARIANTS, help="directions (default: all three)")
    which.add_argument("--ndim", nargs="+", type=int, choices=NDIMS, help="dimensions (default: 2 3)")
    types = ("--datatype", "--dtype")
    which.add_argument(*types, dest="datatype", nargs="+", choices=DTYPES, help="data types (default: all three)")
    which.add_argument("--arch-filtered", action="store_true", help="only those that the reference's filter passes")
    meaning = "emit kernels with these flags as well; all for every flag"
    which.add_argument("--include-flagged", nargs="+", default=[], metavar="FLAG", help=meaning)

    how = parser.add_argument_group("how")
    how.add_argument("--compare", type=Path, metavar="CSV", help="with --counts: counts to compare with")
    meaning = f"kernels per registration source (default: {DEFAULT_CHUNK_SIZE})"
    how.add_argument("--chunk-size", type=options.positive, metavar="N", help=meaning)
    options.add_tables(how)
    templates = Path("workflow/templates")
    how.add_argument("--templates", type=Path, default=templates, metavar="DIR", help=f"default: {templates}")
    meaning = "level of the CK Tile API (default: the newest); with --list-names only kernels that it has"
    how.add_argument("--ck-api", metavar="LEVEL", help=meaning)
    how.add_argument("--ck-root", type=Path, metavar="DIR", help="Composable Kernel checkout, for profiler and tests")
    request.add_field_options(parser.add_argument_group("one kernel by its fields, instead of a rule set"))
    parser.epilog = "One request: full-tests and tiny are drawn from all that is requested together."


def run(args: argparse.Namespace) -> int:
    """List, count or emit the kernels of the request."""
    _check(args)
    if args.counts:
        return _count(args)
    if args.output:
        results = [_emit(args, arch, args.output / arch) for arch in args.arch]
        return options.answer(args, {"archs": results}, (EMITTED.format(**result) for result in results))
    kernels = [(arch, kernel) for arch in args.arch for kernel in _requested_kernels(args, arch)]
    if not kernels:
        print(f"{_title(args)} has no such kernel on {' '.join(args.arch)}", file=sys.stderr)
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
    return emitter(find_file(args.templates), find_file(args.config / "ck_api.yaml"), args.ck_api or "")


def _at_level(kernel: ListedKernel, arch: str, emitter: Emitter) -> dict[str, str]:
    """Say why the API level lacks a kernel, and why it runs only with split-K 1; each empty if it does not."""
    own = kernel.kernel.built_as
    return dict(zip(AT_LEVEL, (emitter.lack(own, arch), emitter.only_one_slice(own)), strict=True))


def _check(args: argparse.Namespace) -> None:
    """Raise a ``UserError`` for options that are missing, contradict each other, or would have no effect."""
    for option, action in OPTIONS_OF_ONE_ACTION.items():
        if getattr(args, option[2:].replace("-", "_")) and not getattr(args, action):
            raise UserError(f"{option} is for --{action}")
    if args.counts and args.ck_api:
        raise UserError("--counts counts whole rule sets, whatever the level: leave out --ck-api")
    if args.counts:
        fields = [request.option_of(field) for field in request.given_fields(args)]
        if fields or args.variant or args.ndim or args.datatype or args.arch_filtered:
            raise UserError("--counts counts every cell of rule sets: leave out all options of single kernels")
        return
    if not args.arch:
        raise UserError("which arch? add --arch gfx950")
    if len(set(args.arch)) != len(args.arch):
        raise UserError(f"an arch is given twice in {' '.join(args.arch)}")
    field = next(iter(request.given_fields(args)), None)
    others = ", ".join(arch for arch in args.arch if library_of_arch(arch) is not CK_TILE)
    if others and (field or args.ck_api or args.arch_filtered):
        raise UserError(f"--ck-api, --arch-filtered and fields of a kernel are for AMD's archs, not for {others}")
    if field and args.rule_set:
        raise UserError(f"--rule-set and {request.option_of(field)} exclude each other: leave out one")
    if args.ck_root and args.rule_set not in BUILDER_SETS:
        raise UserError(f"--ck-root is for the rule sets {' and '.join(BUILDER_SETS)}")


def _title(args: argparse.Namespace) -> str:
    return "one kernel" if request.given_fields(args) else args.rule_set or DEFAULT_RULE_SET


def _requested_kernels(args: argparse.Namespace, arch: str) -> list[ListedKernel]:
    """Return the kernels of the request on one arch, the filters applied."""
    specs = ArchSpecs.load(find_file(args.config / "arch_specs.json"))
    requested = args.variant or list(VARIANTS), args.ndim or list(DEFAULT_NDIMS), args.datatype or list(DTYPES)
    if fields := request.given_fields(args):
        specs.arch(arch)
        values = request.kernel_fields(fields)
        if DEPTHWISE in requested[0]:
            raise UserError(f"{DEPTHWISE} kernels have other fields than these options: use a rule set")
        kernels = list_kernels(kernels_of_fields(values, *requested), arch, specs)
    else:
        name, folder = args.rule_set or DEFAULT_RULE_SET, find_file(args.config / "rule_sets")
        kernels = RuleSet(name, folder, args.ck_root, specs).list_kernels(arch, *requested)
    return [kernel for kernel in kernels if not (kernel.rule and args.arch_filtered)]


def _count(args: argparse.Namespace) -> int:
    """Count the kernels of each cell; return 1 if a count differs from that of ``--compare``."""
    reference = counts.read_reference(args.compare) if args.compare else {}
    specs = ArchSpecs.load(find_file(args.config / "arch_specs.json"))
    enumerator = Enumerator(specs, RuleTables.read_folder(find_file(args.config / "rule_sets")), args.ck_root)
    sets = [args.rule_set] if args.rule_set else [*TABLE_SETS, *(BUILDER_SETS if args.ck_root else ())]
    archs = args.arch or sorted({cell.arch for cell in reference}) or list(specs.archs)
    cells = list(counts.counted_cells(archs, sets))
    rows: list[dict[str, Any]] = []
    with Progress("count", len(cells), "cells") as progress:
        for cell in cells:
            numbers = counts.count_kernels(enumerator.enumerate(cell.rule_set, cell.arch, *cell.request()))
            rows.append({**cell._asdict(), **numbers})
            if reference:
                expected = reference.get(cell)
                same = counts.difference(numbers, expected) or "same" if expected else "no reference"
                rows[-1]["reference"] = same
            progress.add()
    compared = sum(cell in reference for cell in cells)
    different = sum(row.get("reference", "same") not in ("same", "no reference") for row in rows)
    if reference:
        missing = len(reference.keys() - set(cells))
        print(f"{compared} cells compared, {different} differ, {missing} of the file not requested", file=sys.stderr)
        if not compared:
            raise UserError(f"{args.compare}: no row of it is among the requested cells")
    content = {"counts": rows, "compared": compared, "different": different}
    lines = ["\t".join(map(str, row)) for row in (rows[0], *(row.values() for row in rows))]
    return options.answer(args, content, lines, bool(different))


def _emit(args: argparse.Namespace, arch: str, folder: Path) -> dict[str, Any]:
    """Emit the kernels of one arch; return what ``--json`` prints of it."""
    check_flags(args.include_flagged)
    kernels = _requested_kernels(args, arch)
    left_out = [kernel for kernel in kernels if not kernel.is_built(args.include_flagged)]
    if request.given_fields(args) and left_out:
        raise UserError("\n".join(_refusals(left_out)))
    chosen = [kernel.kernel.built_as for kernel in kernels if kernel.is_built(args.include_flagged)]
    built = {kernel.name: kernel for kernel in chosen}
    if not built:
        raise UserError(f"{_title(args)}: no kernel to emit for {arch} ({len(left_out)} are flagged)")
    emitter = _emitter(args, arch)
    emitted = [built[name] for name in sorted(built) if not emitter.lack(built[name], arch)]
    if not emitted:
        raise UserError(f"{_title(args)}: the level {args.ck_api} of the CK Tile API has none of {len(built)} kernels")
    files = emitted_folder.emit_folder(folder, emitted, arch, emitter, args.chunk_size or DEFAULT_CHUNK_SIZE)
    left_out_of = {"left_out_by_a_flag": len(left_out), "not_in_the_api_level": len(built) - len(emitted)}
    return {"arch": arch, "folder": folder, "kernels": len(emitted), **left_out_of, **files}


def _refusals(kernels: Sequence[ListedKernel]) -> Iterator[str]:
    """Yield one line for each flag and reason, however many kernels have it."""
    names_of: dict[tuple[str, str], list[str]] = {}
    for kernel in kernels:
        for flag in kernel.flags:
            names_of.setdefault((flag.name, flag.reason), []).append(kernel.name)
    for (flag_name, reason), names in names_of.items():
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        yield f"{names[0]}{others}: {flag_name}: {reason} (--include-flagged {flag_name} asks for it)"
