#!/usr/bin/env python3
"""Find by compiling which kernels of the rule sets an API level of CK Tile lacks, and write it to config/ck_api.yaml.

The compiler's front end is asked for a few kernels that together show every kind of the pools: a kind counts as there
if a kernel of it compiles. From those that fail rules of a few shapes are made that no kernel which compiles breaks,
and each is tried on further kernels that it would leave out: of each arch, direction, data type and main loop.
Verdicts are kept in docs/generated; a later run compiles only what they leave open, and kernels whose text changed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, product
from pathlib import Path
from typing import Any

import pandas as pd

from tileseer.build import compiler
from tileseer.build import source_trees as trees
from tileseer.build.base import CompileResult, CompileUnit, Resources
from tileseer.build.hipcc import DEVICE_PASS, HipccToolchain, device_files
from tileseer.build.machine_code import KernelCode
from tileseer.core.atomic import write_text
from tileseer.core.cache import Cache, default_folder
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.facts import hardware
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.compile import CkSettings, CompileSettings
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.ck_tile import api as ck_api
from tileseer.libraries.ck_tile.api import OWN_VECTORS, Lack, field_word
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.libraries.ck_tile.upstream import named
from tileseer.libraries.enumeration import NDIMS
from tileseer.problems.operation import Operation

API, RULE_SETS = Path("config/ck_api.yaml"), Path("config/rule_sets")
ARCHS = ("gfx950", "gfx942", "gfx90a")
FLAGS = ("half_zero_output",)
"""Kernels with other flags are in no pool."""
TRIED = "docs/generated/compile-{level}.tsv"
COLUMNS = ("arch", "kernel", "text", "error")
"""``text``: digest of the emitted text that was compiled; empty where it was another one."""
LAUNCHER = re.compile(rb"^#ifndef TILESEER_TYPES_ONLY.*?^#endif$", re.M | re.S)
POOLS = {"default pool": ("sweep.yaml",), "named sets": ("default", "full")}
"""Rule sets of each pool."""
MARK = "    not_compiled:"
"""Line of the table: what follows it is written here."""
LOOP = ("pipeline", "scheduler", "double_smem_buffer")
SPECIAL = ("ndim", "num_groups_to_merge", "two_stage", "specialization", "split_image", "epilogue")
FIELDS = (
    "variant",
    *LOOP,
    OWN_VECTORS,
    "dtype",
    "warp_tile",
    "vec_a",
    "vec_b",
    "vec_c",
    "arch",
    "tile",
    "wave",
    *SPECIAL,
)
"""What tells one kind from another."""
SHAPES = (
    ("arch", OWN_VECTORS),
    ("pipeline", "double_smem_buffer"),
    ("dtype", "warp_tile"),
    ("arch", "variant", "dtype"),
    ("arch", "pipeline"),
    ("arch", "pipeline", OWN_VECTORS),
    ("vec_c", "warp_tile", "wave"),
    ("pipeline", "warp_tile", "tile", "wave"),
    ("variant", "pipeline", "double_smem_buffer"),
    ("arch", "variant", "dtype", "warp_tile", "vec_a"),
    ("arch", "variant", "dtype", "pipeline", "warp_tile", "vec_a"),
    ("arch", "variant", "warp_tile", "tile", "wave", "vec_a", "vec_b"),
    ("arch", "variant", "pipeline", "warp_tile", "tile", "wave", "vec_a", "vec_b", "vec_c"),
)
"""Fields that a rule may be about, the most general first; if none will do, a rule is about one kernel."""
TRIES = ("arch", "variant", "dtype", *LOOP)
"""A rule is tried for every value of these among the kernels that it leaves out."""
ROUND = 20
"""Kernels that are compiled before the next ones are chosen, all of one arch."""


class FrontEnd(HipccToolchain):
    """Says whether kernels compile, by the compiler's front end alone: a fifth of the work, and no machine code."""

    result_format = "hipcc-front-end-1"
    passes = (*DEVICE_PASS, "-emit-llvm", "-Xclang", "-disable-llvm-passes")

    def run(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, list[KernelCode]]:
        """Compile units in one run, to the compiler's own language before its optimizer."""
        with compiler.workspace(device_files(units)) as folder:
            run = self.device_pass(units[0].arch, folder, len(units))
        return run, [KernelCode(Resources("code_object"), "") for _ in units] if run.outcome == "ok" else []


@dataclass(frozen=True, order=True)
class Case:
    """A kernel on an arch."""

    arch: str
    kernel: KernelConfig

    def words(self) -> dict[str, Any]:
        """Its value of each of ``FIELDS``."""
        return {field: self.arch if field == "arch" else field_word(self.kernel, field) for field in FIELDS}

    def combination(self) -> tuple[object, ...]:
        """Its value of every field but tile and waves."""
        k = self.kernel
        values = (getattr(k, field) for field in ("variant", "dtype", *LOOP, *SPECIAL, "vectors", "warp_tile"))
        return (self.arch, *values)

    def kinds(self, default_pool: bool) -> set[tuple[object, ...]]:
        """The kinds that it shows: two fields together where one may not go with the other; of the default pool all."""
        k, found = self.kernel, set[tuple[object, ...]]()
        size = "fp32" if k.dtype == "fp32" else "half"
        loop = tuple(getattr(k, field) for field in LOOP)
        found.add(("loop", size, *loop))
        found.add(("warp tile", size, k.pipeline, k.warp_tile))
        found |= {("vector", field, size, k.pipeline, getattr(k, field)) for field in ("vec_a", "vec_b")}
        found |= {("vector", "vec_c", size, k.vec_c), ("vectors", size, k.vectors), ("dtype", k.dtype)}
        found |= {(field, getattr(k, field)) for field in SPECIAL}
        if default_pool:
            found |= {("tile", k.pipeline, k.tile, k.wave, k.warp_tile), self.combination()}
        return {(self.arch, k.variant, *kind) for kind in found}

    def cost(self) -> float:
        """How long it takes to compile beside others: larger tiles a wave mean more to instantiate."""
        k = self.kernel
        return 1 + k.tile_m * k.tile_n * k.tile_k / (k.wave_m * k.wave_n * k.wave_k) / 250_000


class Pools:
    """The kernels of the rule sets, of each text one: those of the default pool, and those of named sets."""

    def __init__(self, level: str) -> None:
        self.api, self.emitter = ck_api.read_api(API, level), CkTileEmitter(Path("workflow/templates"), API, level)
        self._specs = ArchSpecs.load("config/arch_specs.json")

    def cases(self, *rule_sets: str) -> list[Case]:
        """Kernels of rule sets that the level has a form for, sorted."""
        found = {}
        for arch, rule_set in product(ARCHS, rule_sets):
            for kernel in self._default(arch) if rule_set == "sweep.yaml" else self._named(rule_set, arch):
                if not self.api.no_form(kernel):
                    # Two names of one main loop make the same text.
                    twin = replace(kernel, pipeline=min(p for p, row in self.api.pipelines.items()
                                                        if row == self.api.pipelines[kernel.pipeline]))  # fmt: skip
                    found[Case(arch, twin)] = None
        return sorted(found)

    def _default(self, arch: str) -> Iterator[KernelConfig]:
        sweep = CkTileSweep.read_file(RULE_SETS / "sweep.yaml")
        for variant in VARIANTS:
            yield from sweep.enumerate(self._specs, arch, Operation(variant, "bf16"), (2, 3), FLAGS).kernels

    def _named(self, rule_set: str, arch: str) -> Iterator[KernelConfig]:
        enumerator = named.Enumerator(self._specs, named.RuleTables.read_folder(RULE_SETS))
        for row in enumerator.enumerate(rule_set, arch, VARIANTS, NDIMS, DTYPES):
            if row.is_built(FLAGS) and isinstance(row.kernel, KernelConfig):
                yield row.kernel.built_as

    def unit(self, case: Case) -> CompileUnit:
        """What is compiled of a kernel."""
        return CompileUnit(case.kernel, case.arch, self.emitter.header(case.kernel, case.arch).encode())

    def text(self, case: Case) -> str:
        """Digest of what the front end compiles of a kernel: all but its launcher."""
        return hashlib.sha256(LAUNCHER.sub(b"", self.unit(case).header)).hexdigest()[:12]


Rule = dict[str, Any]
"""Field to value: the kernels that have all of them."""
Verdicts = dict[Case, str]
"""The compiler's first error, without the names of types; empty if it compiles."""


def holds(rule: Rule, words: Mapping[str, Any]) -> bool:
    """Whether a rule is about a kernel."""
    return all(words[field] == value for field, value in rule.items())


def induced(verdicts: Verdicts) -> list[Rule]:
    """Rules that together are about every kernel which fails, and about none that compiles."""
    passed = [case.words() for case, error in verdicts.items() if not error]
    failed = [case.words() for case, error in sorted(verdicts.items()) if error]
    found: list[Rule] = []
    while failed:
        found.append(_rule(failed, passed))
        best = found[-1]
        failed = [words for words in failed if not holds(best, words)]
    return found


def _rule(failed: list[dict[str, Any]], passed: list[dict[str, Any]]) -> Rule:
    """The rule of the first shape that is about the first kernel that fails, and about none that passes."""
    for fields in (*SHAPES, FIELDS):
        rule = {field: failed[0][field] for field in fields}
        if not any(holds(rule, words) for words in passed):
            return rule
    raise AssertionError(f"a kernel passes and fails: {failed[0]}")


def wanted(cases: Iterable[Case], verdicts: Verdicts, default_pool: bool) -> list[Case]:
    """What to compile next: kernels of kinds that nothing was seen to compile of, and those that try a rule."""
    lacks = induced(verdicts)
    words = {case: case.words() for case in cases}
    out = {case: [rule for rule in lacks if holds(rule, words[case])] for case in words}
    chosen: dict[Case, None] = {}
    for rule in lacks:
        tried = {(field, case.words()[field]) for case, error in verdicts.items()
                 if error and holds(rule, case.words()) for field in TRIES}  # fmt: skip
        for case in sorted((case for case in words if rule in out[case]), key=lambda case: (case.cost(), case)):
            values = {(field, words[case][field]) for field in TRIES}
            if case not in verdicts and values - tried:
                chosen[case] = None
                tried |= values
    compiled = (case.kinds(default_pool) for case, error in verdicts.items() if not error)
    shown = set[tuple[object, ...]]().union(*compiled)
    left = {case: case.kinds(default_pool) - shown for case in words if not out[case] and case not in verdicts}
    arch = next(
        (arch for arch in ARCHS for case in [*chosen, *(case for case in left if left[case])] if case.arch == arch), ""
    )
    chosen = {case: None for case in chosen if case.arch == arch}
    left = {case: kinds for case, kinds in left.items() if case.arch == arch}
    while len(chosen) < ROUND and (left := {case: kinds for case, kinds in left.items() if kinds}):
        best = max(left, key=lambda case: (len(left[case]) / case.cost(), case))
        chosen[best] = None
        seen = left.pop(best)
        left = {case: kinds - seen for case, kinds in left.items()}
    return list(chosen)[:ROUND]


def reason(result: CompileResult) -> str:
    """The error of a result in a line of a table, without the names of types; empty if there is none."""
    if result.status == "ok":
        return ""
    told = re.sub(r"'probe_\d+::Probe'.*", "its type", result.reason)
    return re.sub(r"'[^']{60,}('|$)", "'...'", told).partition(" (aka ")[0][:120].strip()


def lacks(verdicts: Verdicts) -> list[Lack]:
    """The rules as rows of the table; those with one error that differ in one field are one row."""
    rows: list[tuple[dict[str, list[Any]], str]] = []
    for rule in induced(verdicts):
        errors = Counter(error for case, error in verdicts.items() if error and holds(rule, case.words()))
        rows.append(({field: [value] for field, value in rule.items()}, max(sorted(errors), key=errors.__getitem__)))
    for first, second in combinations(range(len(rows)), 2):
        (a, error), (b, other) = rows[first], rows[second]
        differ = [field for field in a if a[field] != b.get(field)]
        if a and error == other and a.keys() == b.keys() and len(differ) == 1:
            rows[second] = (a | {differ[0]: sorted({*a[differ[0]], *b[differ[0]]})}, error)
            rows[first] = ({}, error)
    return [
        Lack(
            kernel={field: values for field, values in row.items() if field != "arch"},
            arch=row.get("arch", []),
            reason=e,
        )
        for row, e in rows
        if row
    ]


def table_text(rows: list[Lack]) -> str:
    """Rows of ``not_compiled`` in YAML."""
    lines = [MARK + ("" if rows else " []")]
    for row in rows:
        fields = ", ".join(f"{field}: {_list(values)}" for field, values in row.kernel.items())
        lines.append("      - kernel: {" + fields + "}")
        lines += [f"        arch: {_list(row.arch)}"] if row.arch else []
        lines += [f"        reason: {json.dumps(row.reason)}"]
    return "\n".join(lines) + "\n"


def _list(values: list[Any]) -> str:
    return "[" + ", ".join(json.dumps(value) if isinstance(value, bool) else str(value) for value in values) + "]"


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Compile what is open and write verdicts and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", help="path of hipcc; by default what `tileseer doctor` shows")
    parser.add_argument("--ck", help="top folder of the CK tree; by default what `tileseer doctor` shows")
    parser.add_argument("--cache", type=Path, default=default_folder())
    args = parser.parse_args(argv)

    settings = CompileSettings(
        toolchain="hipcc", compiler=args.compiler, timeout_seconds=600, batch=ROUND, memory_mib=6144
    )
    found, tree = compiler.find_compiler(settings), trees.tree_of("hipcc", {"ck": args.ck})
    level = trees.ck_level(CkSettings(root=args.ck), API, compiles=True)
    if level != ck_api.LEVELS[-1]:
        raise UserError(f"{API}: only its last level is written, {ck_api.LEVELS[-1]}; the tree is of {level}")
    pools, store = Pools(level), Cache(args.cache, 20 << 30)
    gpus = {row.arch: row for row in hardware.read_products("config/hardware.yaml").values()}
    tried = Path(TRIED.format(level=level))

    def compiled(cases: Iterable[Case]) -> Verdicts:
        made: Verdicts = {}
        for arch, own in groupby(sorted(cases), key=lambda case: case.arch):
            units = {case: pools.unit(case) for case in own}
            chain = FrontEnd(found, tree, settings, store, Path("workflow/native"), gpus[arch])
            made |= zip(units, map(reason, chain.compile(list(units.values()))), strict=True)
        return made

    verdicts = read_verdicts(tried)
    verdicts |= compiled(set(verdicts) - set(read_verdicts(tried, pools)))
    for name, rule_sets in POOLS.items():
        cases = pools.cases(*rule_sets)
        while batch := wanted(cases, verdicts, name == "default pool"):
            verdicts |= compiled(batch)
            write_text(tried, verdicts_text(verdicts, pools))
    write_text(tried, verdicts_text(verdicts, pools))
    write_text(API, API.read_text(encoding="utf-8").partition(MARK)[0] + table_text(lacks(verdicts)))


def read_rows(path: Path) -> dict[Case, dict[str, str]]:
    """Rows of a table of earlier runs, which may be missing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = csv.DictReader(lines, dialect="excel-tab")
    return {Case(row["arch"], KernelConfig.parse(row["kernel"])): row for row in rows}


def read_verdicts(path: Path, pools: Pools | None = None) -> Verdicts:
    """Verdicts of earlier runs; with ``pools``, without those of kernels that are written otherwise today."""
    found = read_rows(path).items()
    return {case: row["error"] for case, row in found if pools is None or row["text"] == pools.text(case)}


def verdicts_text(verdicts: Verdicts, pools: Pools) -> str:
    """Verdicts as a table, sorted."""
    rows = ((case.arch, case.kernel.name, pools.text(case), error) for case, error in sorted(verdicts.items()))
    return pd.DataFrame(rows, columns=COLUMNS).to_csv(sep="\t", index=False, lineterminator="\n")


if __name__ == "__main__":
    raise SystemExit(main())
