"""``tileseer codegen``: list, count or emit the kernels of a rule set, or emit one kernel given by its fields."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileseer.cli import options
from tileseer.conv.operation import DTYPES, VARIANTS
from tileseer.core.errors import UserError
from tileseer.core.places import find
from tileseer.families.registry import of_arch
from tileseer.reference import emitted_folder, request, rule_sets
from tileseer.reference.request import DEPTHWISE, NDIMS, REQUESTED_VARIANTS
from tileseer.settings.rule_set_names import BUILDER_SETS, RULE_SETS, TABLE_SETS

if TYPE_CHECKING:
    # Imported where they are used: an emission that finds nothing to do is over before pydantic is imported.
    from tileseer.gpu.arch import ArchSpecs
    from tileseer.reference.named import Enumerated

DEFAULT_NDIMS = (2, 3)
DEFAULT_RULE_SET = "default"
DEFAULT_CHUNK_SIZE = 25
PACKAGE = Path(__file__).parents[1]
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
    which.add_argument(
        "--rule-set", metavar="SET",
        help=f"{', '.join(RULE_SETS)}, or the path of a table of rules (default: {DEFAULT_RULE_SET})",
    )  # fmt: skip
    which.add_argument("--variant", nargs="+", choices=REQUESTED_VARIANTS, help="directions (default: all three)")
    which.add_argument("--ndim", nargs="+", type=int, choices=NDIMS, help="dimensions (default: 2 3)")
    which.add_argument(
        "--datatype", "--dtype", dest="datatype", nargs="+", choices=DTYPES, help="data types (default: all three)"
    )
    which.add_argument("--arch-filtered", action="store_true", help="only those that the reference's filter passes")
    which.add_argument(
        "--filter",
        metavar="EXPRESSION",
        help="only kernels that it holds for, for example 'tile_m >= 64 and pipeline in (mem, compv3)'",
    )
    which.add_argument(
        "--include-flagged", nargs="+", default=[], metavar="FLAG",
        help="emit kernels with these flags as well; all for every flag",
    )  # fmt: skip

    how = parser.add_argument_group("how")
    how.add_argument("--format", choices=("tsv", "json"), help="of --list-configs (default: tsv)")
    how.add_argument("--compare", type=Path, metavar="CSV", help="with --counts: counts to compare with")
    how.add_argument(
        "--chunk-size", type=int, metavar="N", help=f"kernels a registration source (default: {DEFAULT_CHUNK_SIZE})"
    )
    how.add_argument(
        "--jobs", "--processes", dest="processes", type=int, metavar="N", help="that write files (default: one a core)"
    )
    how.add_argument("--verbose", action="store_true", help="with --output: print the name of each kernel")
    options.add_tables(how)
    how.add_argument(
        "--templates", type=Path, default=Path("workflow/templates"), metavar="DIR",
        help="C++ templates (default: workflow/templates)",
    )  # fmt: skip
    how.add_argument("--ck-api", metavar="LEVEL", help="level of the CK Tile API that is written (default: the newest)")
    how.add_argument("--ck-root", type=Path, metavar="DIR", help="Composable Kernel checkout, for profiler and tests")
    request.configure(parser.add_argument_group("one kernel by its fields, instead of a rule set"))
    parser.epilog = "One request: full-tests and tiny are drawn from all that is asked for together."


def run(args: argparse.Namespace) -> int:
    """Do what is asked; an option that would have no effect is an error."""
    _refuse_options_without_effect(args)
    if args.counts:
        return _count(args)
    if not args.arch:
        raise UserError("which arch? add --arch gfx950")
    if args.output:
        return _emit(args)
    items = [(arch, item) for arch in _archs(args) for item in _listed(args, arch)]
    if not items:
        print(f"{_asked(args)} has no such kernel on {' '.join(args.arch)}", file=sys.stderr)
    if args.list_names:
        found = sorted({item.name for _, item in items})
        if args.json:
            options.print_json("codegen", {"names": found})
        else:
            sys.stdout.writelines(f"{name}\n" for name in found)
    elif args.json or args.format == "json":
        records = [item.record(arch) for arch, item in items]
        if args.json:
            options.print_json("codegen", {"configs": records})
        else:
            print(json.dumps(records, indent=1, sort_keys=True))
    else:
        from tileseer.reference.named import COLUMNS

        rows = [COLUMNS, *(item.row(arch).values() for arch, item in items)]
        sys.stdout.writelines("\t".join(row) + "\n" for row in rows)
    return 0


def _words(args: argparse.Namespace) -> tuple[list[str], list[int], list[str]]:
    """Directions, dimensionalities and data types of a request, defaults filled in."""
    return args.variant or list(VARIANTS), args.ndim or list(DEFAULT_NDIMS), args.datatype or list(DTYPES)


def _asked(args: argparse.Namespace) -> str:
    return "one kernel" if request.given(args) else args.rule_set or DEFAULT_RULE_SET


def _archs(args: argparse.Namespace) -> list[str]:
    if len(set(args.arch)) != len(args.arch):
        raise UserError(f"an arch is given twice in {' '.join(args.arch)}")
    return list(args.arch)


def _refuse_options_without_effect(args: argparse.Namespace) -> None:
    fields = request.given(args)
    others = ", ".join(arch for arch in args.arch or () if of_arch(arch) is not rule_sets.NAMED_OF)
    faults = (
        (args.format and not args.list_configs, "--format is for --list-configs"),
        (args.format and args.json, "--format says how lists look without --json: leave out one"),
        (args.verbose and args.json, "--verbose prints names, --json has them: leave out one"),
        (args.compare and not args.counts, "--compare is for --counts"),
        (args.ck_api and not args.output, "--ck-api is for --output"),
        (args.ck_api and others, f"--ck-api is for AMD's archs: {others} has one API level"),
        (args.arch_filtered and others, f"--arch-filtered is for AMD's archs: nothing filters kernels of {others}"),
        (fields and others, f"{_first_option(fields)} is for AMD's archs: name a rule set for {others}"),
        (args.chunk_size is not None and not args.output, "--chunk-size is for --output"),
        (args.processes is not None and not args.output, "--jobs is for --output"),
        (args.verbose and not args.output, "--verbose is for --output"),
        (args.include_flagged and not args.output, "--include-flagged is for --output; lists have every kernel"),
        (fields and args.rule_set, f"--rule-set and {_first_option(fields)} exclude each other: leave out one"),
        (fields and args.counts, f"--counts is for rule sets: leave out {_first_option(fields)}"),
        (args.counts and args.arch_filtered, "--counts has a column of its own for --arch-filtered: leave it out"),
        (
            args.ck_root and not args.counts and (fields or args.rule_set not in BUILDER_SETS),
            f"--ck-root is for the rule sets {' and '.join(BUILDER_SETS)}",
        ),
        (
            args.counts and (args.variant or args.ndim or args.datatype or args.filter is not None),
            "--counts counts every cell: leave out --variant, --ndim, --datatype and --filter",
        ),
    )
    for wrong, told in faults:
        if wrong:
            raise UserError(told)
    for option, value in (("--chunk-size", args.chunk_size), ("--jobs", args.processes)):
        if value is not None and value < 1:
            raise UserError(f"{option} is {value}; it has to be at least 1")


def _first_option(fields: dict[str, Any]) -> str:
    return request.option_of(next(iter(fields))) if fields else ""


def _listed(args: argparse.Namespace, arch: str) -> list[Enumerated]:
    """Kernels of the request on one arch, the filter applied if it is asked for."""
    from tileseer.gpu.arch import ArchSpecs

    specs = ArchSpecs.load(find(args.config / "arch_specs.json"))
    if fields := request.given(args):
        items = _single(args, fields, specs, arch)
    else:
        name, folder = args.rule_set or DEFAULT_RULE_SET, find(args.config / "rule_sets")
        items = rule_sets.listed(name, folder, args.ck_root, specs, arch, *_words(args))
    items = [item for item in items if item.passes_arch_filter or not args.arch_filtered]
    if args.filter is None:
        return items
    from tileseer.configs import kernel_filter
    from tileseer.reference.named import KINDS

    kinds = {type(item.kernel) for item in items} - set(KINDS)
    wanted = kernel_filter.parse(args.filter, kinds or KINDS, "--filter")
    return [item for item in items if wanted.keeps(vars(item.kernel))]


def _single(args: argparse.Namespace, fields: dict[str, Any], specs: ArchSpecs, arch: str) -> list[Enumerated]:
    """The kernel of the fields for each direction, ndim and data type of the request."""
    from tileseer.reference.named import judged, single

    specs.arch(arch)
    values = request.kernel_fields(fields)
    variants, ndims, dtypes = _words(args)
    if DEPTHWISE in variants:
        raise UserError(f"{DEPTHWISE} kernels have other fields than these options: use a rule set")
    return [judged(kernel, arch, specs) for kernel in single(values, variants, ndims, dtypes)]


def _count(args: argparse.Namespace) -> int:
    from tileseer.gpu.arch import ArchSpecs
    from tileseer.reference import counts
    from tileseer.reference.named import Enumerator, RuleTables

    reference = counts.read_reference(args.compare) if args.compare else {}
    specs = ArchSpecs.load(find(args.config / "arch_specs.json"))
    enumerator = Enumerator(specs, RuleTables.load(find(args.config / "rule_sets")), args.ck_root)
    sets = [args.rule_set] if args.rule_set else [*TABLE_SETS, *(BUILDER_SETS if args.ck_root else ())]
    known = sorted({cell.arch for cell in reference}) or list(specs.archs)
    wanted = list(counts.cells(args.arch or known, sets))
    compared = different = 0
    columns = (*counts.COLUMNS, *(("reference",) if reference else ()))
    rows = []
    if not args.json:
        print("\t".join(columns))
    for cell in wanted:
        found = counts.counts(enumerator.enumerate(cell.rule_set, cell.arch, *cell.request()))
        verdict = []
        if reference:
            expected = reference.get(cell)
            told = counts.difference(found, expected) if expected else ""
            compared += expected is not None
            different += bool(told)
            verdict = [told or ("same" if expected else "no reference")]
        row = [*cell, *found.values(), *verdict]
        rows.append(dict(zip(columns, row, strict=True)))
        if not args.json:
            print("\t".join(map(str, row)))
    if args.json:
        options.print_json("codegen", {"counts": rows, "compared": compared, "different": different})
    if not reference:
        return 0
    missing = sum(cell not in set(wanted) for cell in reference)
    print(f"{compared} cells compared, {different} differ, {missing} of the file not asked for", file=sys.stderr)
    if not compared:
        raise UserError(f"{args.compare}: no row of it is among the cells that were asked for")
    return 1 if different else 0


def _emit(args: argparse.Namespace) -> int:
    emitted = [_emit_arch(args, arch, args.output / arch) for arch in _archs(args)]
    if args.json:
        options.print_json("codegen", {"archs": emitted})
    return 0


def _emit_arch(args: argparse.Namespace, arch: str, folder: Path) -> dict[str, Any]:
    """Emit the kernels of one arch; return what ``--json`` says of it, and print the same without it."""
    chunk_size = args.chunk_size or DEFAULT_CHUNK_SIZE
    asked = _request_digest(args, arch, chunk_size)
    if asked and not args.verbose and emitted_folder.is_current(folder, asked):
        if not args.json:
            print(f"{arch}: nothing changed in {folder}")
        return {"arch": arch, "folder": folder, "changed": False}
    from tileseer.reference.named import check_flags

    check_flags(args.include_flagged)
    items = _listed(args, arch)
    chosen = [item.kernel.built_as for item in items if item.is_built(args.include_flagged)]
    built = {kernel.name: kernel for kernel in chosen}
    left_out = [item for item in items if not item.is_built(args.include_flagged)]
    if request.given(args) and left_out:
        raise UserError("\n".join(_refusals(left_out)))
    if not built:
        raise UserError(f"{_asked(args)}: no kernel to emit for {arch} ({len(left_out)} are flagged)")
    emitter = (
        of_arch(arch).part("emit").emitter(find(args.templates), find(args.config / "ck_api.yaml"), args.ck_api or "")
    )
    kernels = [built[stem] for stem in sorted(built) if not emitter.lack(built[stem], arch)]
    if not kernels:
        raise UserError(f"{_asked(args)}: the level {args.ck_api} of the CK Tile API has none of {len(built)} kernels")
    processes = args.processes or len(os.sched_getaffinity(0))
    written = emitted_folder.emit(folder, kernels, arch, emitter, chunk_size, processes)
    if asked:
        emitted_folder.remember(folder, asked)
    if args.verbose:
        sys.stdout.writelines(f"{stem}\n" for stem in sorted(kernel.name for kernel in kernels))
    if not args.json:
        print(
            f"{arch}: {len(kernels)} kernels, {len(left_out)} left out by a flag, "
            f"{len(built) - len(kernels)} not in the API level; {written.files} files in {folder}, "
            f"{written.changed} written, {written.removed} removed"
        )
    return {
        "arch": arch, "folder": folder, "changed": bool(written.changed or written.removed), "kernels": len(kernels),
        "left_out_by_a_flag": len(left_out), "not_in_the_api_level": len(built) - len(kernels),
        "files": written.files, "files_written": written.changed, "files_removed": written.removed,
    }  # fmt: skip


def _refusals(items: Sequence[Enumerated]) -> Iterator[str]:
    """Yield one line a flag and reason, however many kernels have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in items:
        for flag in item.flags:
            found.setdefault((flag.name, flag.reason), []).append(item.name)
    for (flag_name, reason), names in found.items():
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        yield f"{names[0]}{others}: {flag_name}: {reason} (--include-flagged {flag_name} asks for it)"


def _request_digest(args: argparse.Namespace, arch: str, chunk_size: int) -> str:
    """Digest of all that the emitted files follow from; empty where files of a checkout are read."""
    if args.rule_set in BUILDER_SETS:
        return ""
    inputs = [
        *PACKAGE.rglob("*.py"),
        *find(args.templates).rglob("*.j2"),
        *([Path(args.rule_set)] if args.rule_set and Path(args.rule_set).is_file() else []),
        *find(args.config / "rule_sets").glob("*.yaml"),
        find(args.config / "arch_specs.json"),
        find(args.config / "ck_api.yaml"),
    ]
    asked = {
        "arch": arch, "chunk_size": chunk_size, "rule_set": args.rule_set, "variant": args.variant, "ndim": args.ndim,
        "datatype": args.datatype, "arch_filtered": args.arch_filtered, "flagged": sorted(args.include_flagged),
        "filter": args.filter, "fields": request.given(args), "ck_api": args.ck_api,
    }  # fmt: skip
    return f"{emitted_folder.digest_of_files(inputs)} {asked}"
