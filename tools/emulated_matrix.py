#!/usr/bin/env python3
"""Execute kernels of every kind on the emulated GPU, and write which are right to docs/generated.

A kind is a direction with a main loop, a data type or a special form. Kernels of the rule sets that together show every
kind which is not known to fail are compiled and executed. Verdicts are kept in docs/generated; a later run
executes only kinds that they leave open.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from statistics import median

import pandas as pd

from compile_matrix import API, ARCHS, POOLS, Case, Pools, read_rows
from tileseer.build import registration
from tileseer.build import source_trees as trees
from tileseer.build.base import CompileUnit
from tileseer.build.modules import Libraries
from tileseer.core.atomic import write_text
from tileseer.core.errors import reports_user_errors
from tileseer.facts import hardware
from tileseer.facts.compile import CkSettings
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer_emulated.kernels import Emulation, KernelVerdict

NATIVE, KEPT = Path("workflow/native"), "docs/generated/emulated-{level}.tsv"
COLUMNS = ("arch", "kernel", "verdict", "right", "wrong", "instances", "launched", "executed", "not_launched",
           "not_executed", "said")  # fmt: skip
SHOWN = Path("docs/internals/emulated.md")
MARKS = ("<!-- matrix -->\n", "<!-- end of matrix -->\n")
ROUND = 4
"""Kernels of one arch and direction that are compiled together."""
SIGNS = {
    "ok": "+", "race": "~", "unwritten_load": "~", "wrong_result": "x", "crash": "!", "hang": "!", "run_timeout": "!",
    "not_executable": "-", "unsupported": "0", "compile_error": "c",
}  # fmt: skip
"""How the matrix writes a verdict."""
OPEN, REFUSES, LACKS, COMPILES_NOT, NONE = "?", SIGNS["unsupported"], "w", "c", ""
Verdicts = dict[Case, KernelVerdict]


def loop(k: KernelConfig) -> str:
    """Main loop of a kernel."""
    return f"{k.pipeline}, {k.scheduler}" + (", two LDS buffers" if k.double_smem_buffer else "")


def kinds(case: Case) -> list[tuple[str, str, str]]:
    """Arch, direction and kind of everything that a kernel shows; one for few problems shows what it is for alone."""
    k = case.kernel
    few = {
        k.specialization: k.specialization != "default",
        "merged groups": k.merges_groups,
        "1D": not _has_problems(k),
    }
    forms = {
        loop(k): True,
        k.dtype: True,
        f"{k.ndim}D": True,
        "vectors of 1 or 2": max(k.vectors) <= 2,
        "tile above 64x64": k.tile_m * k.tile_n > 64 * 64,
        "two stages": k.two_stage,
        "large tensor": k.split_image,
        "default epilogue": k.epilogue == "default",
    }
    shown = few if any(few.values()) else forms
    return [(case.arch, k.variant, kind) for kind, holds in shown.items() if holds]


def _has_problems(k: KernelConfig) -> bool:
    """Whether a kernel can be executed: no problem is 1D."""
    return k.ndim > 1


def most_informative(cases: Iterable[Case], verdicts: Verdicts) -> list[Case]:
    """Kernels that together show many kinds which no verdict shows; a few of one arch and direction."""
    shown = {kind for case in verdicts for kind in kinds(case)}
    left = {case: new for case in cases if (new := set(kinds(case)) - shown)}
    chosen: list[Case] = []
    while left and len(chosen) < ROUND:
        best = max(left, key=lambda case: (len(left[case]) / cost(case), case))
        shown = left[best]
        chosen.append(best)
        same = ((case, new - shown) for case, new in left.items() if case.arch == best.arch)
        left = {case: new for case, new in same if new and case.kernel.variant == best.kernel.variant}
    return chosen


def cost(case: Case) -> float:
    """How long a kernel takes beside others: large tiles are compiled and, above all, executed for longer."""
    k = case.kernel
    return case.cost() + k.tile_m * k.tile_n * k.tile_k / 200_000


def execute(arch: str, kernels: list[KernelConfig], pools: Pools) -> list[KernelVerdict]:
    """One verdict per kernel; those that do not compile together are compiled alone."""
    settings: dict[str, dict[str, object]] = {"compile": {"toolchain": "hipcc", "batch": ROUND}, "ck": {}, "cache": {}}
    libraries = Libraries(*registration.builder_parts(settings, arch, NATIVE))
    units = [CompileUnit(one, arch, pools.emitter.header(one, arch).encode()) for one in kernels]
    return Emulation(libraries, hardware.product_of_arch("config/hardware.yaml", arch)).build_and_execute(units)


def matrix(pools: Pools, cases: Iterable[Case], verdicts: Verdicts) -> str:
    """Coverage, and verdicts on each kind: one row per kind, one column per arch and direction."""
    cells: dict[tuple[str, str, str], Counter[str]] = {}
    for case in cases:
        if case not in verdicts:
            lack = pools.api.lack(case.kernel, case.arch)
            sign = OPEN if _has_problems(case.kernel) else REFUSES
            if lack:
                sign = COMPILES_NOT if pools.api.not_built(case.kernel, case.arch) else LACKS
            for kind in kinds(case):
                cells.setdefault(kind, Counter())[sign] += 1
    for case, verdict in verdicts.items():
        # What is wrong for an explained reason is its main loop, or what it is for.
        for kind in kinds(case)[: 1 if pools.api.lack(case.kernel, case.arch) else None]:
            cells.setdefault(kind, Counter())[SIGNS[verdict.status]] += 1
    columns = [(arch, variant) for arch in ARCHS for variant in VARIANTS]
    lines = ["|kind|" + "|".join(map(" ".join, columns)) + "|", "|" + "---|" * (len(columns) + 1)]
    for name in sorted({name for _, _, name in cells}):
        row = (_cell(cells.get((*column, name), Counter())) for column in columns)
        lines.append(f"|{name}|{'|'.join(row)}|")
    return coverage_text(verdicts) + "\n".join(lines) + "\n"


def coverage_text(verdicts: Verdicts) -> str:
    """How much of the kernels was launched and executed."""
    right = [verdict for verdict in verdicts.values() if verdict.status == "ok"]
    launched, instances = (sum(getattr(verdict, name) for verdict in right) for name in ("launched", "instances"))
    return (
        f"All problems of {len(verdicts)} kernels launch {launched} of the {instances} instances of the\n"
        f"{len(right)} right ones, and execute {executed_text(verdicts)} of their instructions "
        f"(median {100 * median(verdict.executed for verdict in right):.0f} %).\n\n"
    )


def executed_text(verdicts: Verdicts) -> str:
    """The range of the share that was executed of the right kernels' instructions."""
    shares = [100 * verdict.executed for verdict in verdicts.values() if verdict.status == "ok"]
    return f"{min(shares):.0f} to {max(shares):.0f} %"


def _cell(counts: Counter[str]) -> str:
    """Verdicts, or if there are none what else is known."""
    texts = [f"{counts[sign] if counts[sign] > 1 else ''}{sign}" for sign in dict.fromkeys(SIGNS.values())
             if counts[sign] and sign not in (REFUSES, COMPILES_NOT)]  # fmt: skip
    return " ".join(texts) or next((sign for sign in (OPEN, REFUSES, LACKS, COMPILES_NOT) if counts[sign]), NONE)


def read_verdicts(path: Path) -> Verdicts:
    """Verdicts of earlier runs."""
    return {case: _verdict(row) for case, row in read_rows(path).items()}


def _verdict(row: dict[str, str]) -> KernelVerdict:
    return KernelVerdict(
        row["kernel"], row["verdict"], int(row["right"]), int(row["wrong"]), instances=int(row["instances"]),
        launched=int(row["launched"]), executed=float(row["executed"]), not_launched=row["not_launched"],
        not_executed=row["not_executed"], said=row["said"],
    )  # fmt: skip


def verdicts_text(verdicts: Verdicts) -> str:
    """Verdicts as a table, sorted."""
    rows = (asdict(v) | {"arch": case.arch, "verdict": v.status} for case, v in sorted(verdicts.items()))
    return pd.DataFrame(rows, columns=COLUMNS).to_csv(sep="\t", index=False, lineterminator="\n")


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Execute what is open, and write verdicts and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000, help=f"end after so many rounds of {ROUND} kernels")
    parser.add_argument("kernels", nargs="*", metavar="ARCH:NAME", help="execute these first, executed before or not")
    args = parser.parse_args(argv)

    level = trees.ck_level(CkSettings(root=None), API, compiles=True)
    pools, kept = Pools(level), Path(KEPT.format(level=level))
    verdicts = read_verdicts(kept)
    cases = {*pools.cases(*chain(*POOLS.values()))}
    offered = [case for case in cases if _has_problems(case.kernel) and not pools.api.lack(case.kernel, case.arch)]
    words = (word.partition(":") for word in args.kernels)
    requested = [Case(arch, KernelConfig.parse(name)) for arch, _, name in words]
    for _ in range(args.rounds):
        batch = [case for case in requested if case.arch == requested[0].arch][:ROUND]
        batch = batch or most_informative(offered, verdicts)
        if not batch:
            break
        results = execute(batch[0].arch, [case.kernel for case in batch], pools)
        verdicts |= zip(batch, results, strict=True)
        write_text(kept, verdicts_text(verdicts))
        requested = [case for case in requested if case not in batch]
    before, rest = SHOWN.read_text(encoding="utf-8").split(MARKS[0])
    write_text(SHOWN, before + MARKS[0] + matrix(pools, cases, verdicts) + MARKS[1] + rest.split(MARKS[1])[1])


if __name__ == "__main__":
    raise SystemExit(main())
