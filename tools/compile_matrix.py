#!/usr/bin/env python3
"""Compile one kernel of each kind for each arch, and write docs/generated/compile-matrix.md."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from tileseer.compile import compiler, trees
from tileseer.compile.base import INSTRUCTIONS, CompileResult, CompileUnit
from tileseer.compile.hipcc import HipccToolchain
from tileseer.core.atomic import write_text
from tileseer.core.cache import Cache, default_folder
from tileseer.core.errors import reports_user_errors
from tileseer.core.tables import Table, read
from tileseer.families.ck_tile import api as ck_api
from tileseer.families.ck_tile.emit import Emitter
from tileseer.families.ck_tile.kernel import parse
from tileseer.gpu import hardware
from tileseer.settings.compile import CkSettings, CompileSettings

API = Path("config/ck_api.yaml")
SHOWN = 10
"""Kernels whose resources the page lists."""


class Matrix(Table):
    """What to compile."""

    archs: list[str]
    kernels: dict[str, str]
    """Kind to kernel name."""


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Compile the kernels missing from the cache, arch by arch, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrix", type=Path, default=Path("config/compile_matrix.yaml"))
    parser.add_argument("--compiler", help="path of hipcc; by default what `tileseer doctor` shows")
    parser.add_argument("--ck", help="top folder of the CK tree; by default what `tileseer doctor` shows")
    parser.add_argument("--cache", type=Path, default=default_folder())
    parser.add_argument("--known", action="store_true", help="compile nothing; list the kernels in the cache")
    parser.add_argument("--output", type=Path, default=Path("docs/generated/compile-matrix.md"))
    args = parser.parse_args(argv)

    matrix = read(args.matrix, Matrix)
    settings = CompileSettings(toolchain="hipcc", compiler=args.compiler, timeout_seconds=600)
    tree, found = CkSettings(root=args.ck), compiler.find(settings)
    level = trees.ck_level(tree, API, compiles=True)
    store = Cache(args.cache, 20 << 30)
    results = {}
    for arch in matrix.archs:
        gpu = next(row for row in hardware.load("config/hardware.yaml").values() if row.arch == arch)
        toolchain = HipccToolchain(
            found, trees.tree_of("hipcc", {"ck": tree.root}), settings, store, Path("workflow/native"), gpu
        )
        units = _units(matrix.kernels, arch, level)
        if args.known:
            units = {kind: unit for kind, unit in units.items() if store.get(toolchain.key(unit)) is not None}
        results[arch] = dict(zip(units, toolchain.compile(list(units.values())), strict=True))
        print(f"{arch}: {toolchain.runs} compiler runs", flush=True)
    write_text(args.output, page(matrix, results, level, found.version.splitlines()[0]))


def _units(kinds: Mapping[str, str], arch: str, level: str) -> dict[str, CompileUnit]:
    emitter, api = Emitter(Path("workflow/templates"), API, level), ck_api.load(API, level)
    kernels = {kind: parse(name) for kind, name in kinds.items()}
    return {
        kind: CompileUnit(kernel, arch, emitter.header(kernel, arch).encode())
        for kind, kernel in kernels.items()
        if not api.lack(kernel)
    }


def page(matrix: Matrix, results: Mapping[str, Mapping[str, CompileResult]], level: str, compiler_name: str) -> str:
    """The page: kind by arch, the errors, and the resources of a few kernels."""
    api = ck_api.load(API, level)
    errors: dict[str, str] = {}
    lines = [
        "# What compiles",
        "",
        f"Written by `make compile-matrix` with {compiler_name} against a Composable Kernel tree of API level {level}:",
        "the device pass of one kernel of each kind (`config/compile_matrix.yaml`). A dash was not compiled.",
        "",
        f"| kind | {' | '.join(matrix.archs)} |",
        "|---|" + "---|" * len(matrix.archs),
    ]
    for kind, name in matrix.kernels.items():
        lack = api.lack(parse(name))
        cells = [
            "unsupported_by_ck" if lack else _cell(results.get(arch, {}).get(kind), errors) for arch in matrix.archs
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines += ["", "## Errors", "", "| digest | first error |", "|---|---|"]
    lines += [f"| {digest} | `{reason.replace('|', '/')[:300]}` |" for digest, reason in sorted(errors.items())]
    lines += ["", "## Kinds that this level lacks", "", "| kind | reason |", "|---|---|"]
    for kind, name in matrix.kernels.items():
        if lack := api.lack(parse(name)):
            lines.append(f"| {kind} | {lack} |")
    return "\n".join(lines + _resources(matrix, results)) + "\n"


def _cell(result: CompileResult | None, errors: dict[str, str]) -> str:
    if result is None:
        return "–"
    if not result.error_digest:
        return result.status
    errors[result.error_digest] = result.reason
    return f"{result.status} {result.error_digest}"


def _resources(matrix: Matrix, results: Mapping[str, Mapping[str, CompileResult]]) -> list[str]:
    columns = ("VGPR", "AGPR", "SGPR", "LDS bytes", "scratch bytes", "VGPR spills", "blocks a CU", "code bytes")
    mix = ("MFMA", "global loads", "stores", "LDS reads", "LDS writes", "barriers")
    arch = next(iter(results), "")
    lines = ["", f"## Resources of {SHOWN} kernels on {arch}", ""]
    lines += [f"| kind | {' | '.join((*columns, *mix))} |", "|---|" + "---|" * (len(columns) + len(mix))]
    built = {kind: made.resources for kind, made in results.get(arch, {}).items() if made.resources.mix}
    step = max(1, len(built) // SHOWN)
    for kind, r in list(built.items())[::step][:SHOWN]:
        values = [r.vgprs, r.agprs, r.sgprs, r.lds_bytes, r.scratch_bytes, r.vgpr_spills, r.occupancy, r.code_bytes]
        values += [(r.mix or {})[kind] for kind in INSTRUCTIONS if kind != "total"]
        lines.append(f"| {kind} | {' | '.join(f'{value:g}' for value in values if value is not None)} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
