"""Ask the compiled library, without a GPU, which problems its kernels run and how; write how our rules agree."""

import argparse
import ctypes
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from host_check import HostChecks, HostCompiler, numbers, silence
from tileseer.build import compiler
from tileseer.build.base import CompileUnit
from tileseer.build.source_trees import HeaderTree
from tileseer.core.atomic import write_text
from tileseer.core.cache import Cache, default_folder
from tileseer.core.errors import reports_user_errors
from tileseer.core.tables import StrictModel, read_yaml_table
from tileseer.facts import hardware
from tileseer.facts.compile import CompileSettings
from tileseer.facts.hardware import Hardware
from tileseer.learn.features import Features
from tileseer.libraries.ck_tile import api as ck_api
from tileseer.libraries.ck_tile import kernel
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import KernelConfig, parse
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.registry import check_support, tree_of_toolchain
from tileseer.problems import problem, problem_sets
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem
from tileseer.problems.shapes import implicit_gemm

API = Path("config/ck_api.yaml")
PROBLEMS = Path("config/problems/training.yaml")
SPLITS = {"forward": (1,), "bwd_data": (1,), "bwd_weight": (1, 4)}
FP32_BYTES = 4
WHY = (
    "`merge_groups`, only the library runs: backward-data kernels of this level merge nothing, and check nothing. Other"
    " directions have the check. Our rule stays.",
    "`tensor_size`, only the library runs: forward kernels of this level split N where an image tensor passes 2 GiB."
    " Our rule asks for a `split_image` kernel at any level, and stays.",
    "Only ours run, bwd_weight two-stage with vectors of 8 at split-K 4: slices are added by vectors of at most 16"
    " bytes, and a two-stage kernel adds fp32. Our rules do not know this limit of the level.",
)
"""What every disagreement that is left comes from, by the text of the library."""
LAUNCHES = (
    "",
    "## Grids and workspaces",
    "",
    "Of the pairs that both run: the blocks of the library's grid against the feature `blocks` (ratio: theirs by",
    "ours), and the workspace that the launcher asks for against our own figure: the output in fp32 for two-stage",
    "kernels, else nothing. Sub-GEMMs of a strided backward-data problem have rows in the padding, which the feature",
    "does not count. The library's grid does not follow merged groups of forward and backward-data kernels at this",
    "level; our feature does, and our launcher of forward kernels. Where a tensor comes near 2 GiB, the library splits",
    "N, and the parts end in the middle of a tile. Our split-K never has more slices than K has tiles; the library",
    "launches them all.",
)


class Kinds(StrictModel):
    """The kernels of the compile matrix."""

    archs: list[str]
    kernels: dict[str, str]


@dataclass(frozen=True)
class Launches:
    """How the library would launch Q kernels for P problems, int64 [P, Q] each; -1 where it refuses the pair."""

    blocks: np.ndarray
    threads: np.ndarray
    workspace_bytes: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """One kernel's verdicts."""

    kind: str
    split_k: int
    both: int
    neither: int
    ours: int
    """Pairs that our rules allow and the library refuses."""
    library: int
    """Pairs that the library allows and our rules refuse."""
    rules: str
    """The rules that refuse those, with how many."""
    same_blocks: int
    """Pairs that both run whose grid has as many blocks as the feature ``blocks`` says."""
    least: float
    most: float
    """Extremes of the library's blocks over ours."""
    same_workspace: int
    """Pairs that both run whose workspace has the size of the output in fp32 (two-stage) or none."""


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Compile the host pass, compare every pair, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrix", type=Path, default=Path("config/compile_matrix.yaml"))
    parser.add_argument("--arch", default="gfx950")
    parser.add_argument("--compiler", help="path of hipcc; by default what `tileseer doctor` shows")
    parser.add_argument("--ck", help="top folder of the CK tree; by default what `tileseer doctor` shows")
    parser.add_argument("--output", type=Path, default=Path("docs/generated/host-support.md"))
    args = parser.parse_args(argv)

    settings = CompileSettings(toolchain="hipcc", compiler=args.compiler, timeout_seconds=900)
    tree, found = tree_of_toolchain("hipcc").find(args.ck), compiler.find_compiler(settings)
    level = ck_api.detect_level(API, tree)
    api, emitter = ck_api.read_api(API, level), CkTileEmitter(Path("workflow/templates"), API, level)
    store = Cache(default_folder(), 20 << 30)
    library = HostCompiler(found, HeaderTree(tree / "include"), settings, store, Path("workflow/native"))
    gpu = next(row for row in hardware.read_products("config/hardware.yaml").values() if row.arch == args.arch)
    kinds = {kind: parse(name) for kind, name in read_yaml_table(args.matrix, Kinds).kernels.items()}
    rows: list[Comparison] = []
    asked: Counter[str] = Counter()
    for variant in SPLITS:
        has = {kind: one for kind, one in kinds.items() if not api.not_built(one, args.arch)}
        own = {kind: one for kind, one in has.items() if one.variant == variant and one.ndim > 1}
        if not own:
            continue
        units = [CompileUnit(one, args.arch, emitter.header(one, args.arch).encode()) for one in own.values()]
        checks = library.load(units)
        for split_k in SPLITS[variant]:
            for dtype in sorted({one.dtype for one in own.values()}):
                drawn = problem_sets.generate_problems(PROBLEMS, Operation(variant, dtype), (2, 3), 1)
                problems = [entry.problem for entry in drawn]
                asked[f"{variant} {dtype}"] = len(problems)
                chosen = [index for index, one in enumerate(own.values()) if one.dtype == dtype]
                every = checks.verdicts(problems, split_k)
                mine = np.zeros_like(every)
                mine[:, chosen] = every[:, chosen]
                launches = launches_of(checks, problems, mine, split_k)
                few = Launches(*(getattr(launches, field.name)[:, chosen] for field in fields(Launches)))
                names = [list(own)[index] for index in chosen]
                rows += compare(names, [own[name] for name in names], problems, every[:, chosen], few, split_k, gpu)
    write_text(args.output, page(rows, asked, level, found.version.splitlines()[0]))


def launches_of(checks: HostChecks, problems: Sequence[Problem], supported: np.ndarray, split_k: int = 1) -> Launches:
    """Grid and workspace of the ``supported`` pairs, bool [P, Q]."""
    found = np.full((3, *supported.shape), -1, np.int64)
    three = (ctypes.c_long * 3)()
    with silence():
        for row, column in zip(*np.nonzero(supported), strict=True):
            checks.library[f"launch_{column}"](numbers(problems[row]), split_k, three)
            found[:, row, column] = three
    return Launches(*found)


def compare(
    names: Sequence[str],
    kernels: Sequence[KernelConfig],
    problems: Sequence[Problem],
    answers: np.ndarray,
    launches: Launches,
    split_k: int,
    gpu: Hardware,
) -> list[Comparison]:
    """One row a kernel; ``answers`` and ``launches`` are the library's, [P, Q] each."""
    frame = problem.problem_frame(list(problems))
    candidates = kernel.frame(list(kernels)).assign(split_k=split_k)
    blocks, workspace = expected(frame, candidates, gpu)
    verdicts = check_support(frame, candidates, kernels[0].variant)
    rows = []
    for column, (name, one) in enumerate(zip(names, kernels, strict=True)):
        same = frame["ndim"].to_numpy() == one.ndim
        ours, theirs = verdicts[same, column] == 0, answers[same, column]
        refusing = Counter(RULES.names[index] for index in verdicts[same, column][~ours & theirs])
        both = np.flatnonzero(same)[ours & theirs]
        ratio = launches.blocks[both, column] / blocks[both, column]
        rows.append(
            Comparison(
                name, split_k, int((ours & theirs).sum()), int((~ours & ~theirs).sum()), int((ours & ~theirs).sum()),
                int((~ours & theirs).sum()), ", ".join(f"{rule} {n}" for rule, n in sorted(refusing.items())),
                int((ratio == 1).sum()), float(ratio.min(initial=1)), float(ratio.max(initial=1)),
                int((launches.workspace_bytes[both, column] == workspace[both, column]).sum()),
            )
        )  # fmt: skip
    return rows


def expected(problems: pd.DataFrame, candidates: pd.DataFrame, gpu: Hardware) -> tuple[np.ndarray, np.ndarray]:
    """Our own figures of every pair, float64 [P, Q]: blocks of the grid, and bytes of the workspace."""
    shape = len(problems), len(candidates)
    rows, columns = (index.ravel() for index in np.indices(shape))
    # Blocks of a stream-K launch depend on the occupancy; no kernel here has one.
    known = candidates.assign(vgprs=np.nan, lds_bytes=np.nan, occupancy=np.nan)
    blocks = Features.of("tileseer", gpu, ["blocks"]).matrix(problems, known, rows, columns)[:, 0]
    gemm = implicit_gemm(problems, str(problems["variant"].iloc[0]))
    output = (gemm["gemm_m"] * gemm["gemm_n"] * gemm["gemm_batch"]).to_numpy() * FP32_BYTES
    return blocks.astype(np.float64).reshape(shape), output[:, None] * candidates["two_stage"].to_numpy()[None, :]


def page(rows: Sequence[Comparison], asked: Counter[str], level: str, compiler_name: str) -> str:
    """The page: the kinds that disagree, and the launches by direction and split-K."""
    total = sum(row.both + row.neither + row.ours + row.library for row in rows)
    differ = sum(row.ours + row.library for row in rows)
    counts = ", ".join(f"{number} {what}" for what, number in sorted(asked.items()))
    columns = ("kind", "split-K", "both run", "both refuse", "only ours run", "only the library runs", "refused by")
    lines = [
        "# The library's own support checks",
        "",
        "Written by `make host-support`: the host code of the kernels in `config/compile_matrix.yaml`, compiled by",
        f"{compiler_name} for API level {level} and asked on a machine without a GPU against a stand-in for the HIP",
        f"runtime. The problems are those of `{PROBLEMS}`: {counts}.",
        "",
        f"Our support rules and the library agree on {total - differ:,} of {total:,} pairs, and about every pair of",
        f"{sum(not r.ours + r.library for r in rows)} of {len(rows)} kinds. The others:",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    lines += [
        f"| {r.kind} | {r.split_k} | {r.both} | {r.neither} | {r.ours} | {r.library} | {r.rules} |"
        for r in rows
        if r.ours or r.library
    ]
    lines += ["", "## What is behind the disagreements", "", *(f"* {why}" for why in WHY)]
    columns = ("direction", "split-K", "pairs", "same blocks", "least ratio", "most ratio", "same workspace")
    lines += [*LAUNCHES, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    groups: dict[tuple[str, int], list[Comparison]] = {}
    for r in rows:
        groups.setdefault((r.kind.split()[0], r.split_k), []).append(r)
    lines += [
        f"| {direction} | {split_k} | {sum(r.both for r in of)} | {sum(r.same_blocks for r in of)} "
        f"| {min(r.least for r in of):.3g} | {max(r.most for r in of):.3g} | {sum(r.same_workspace for r in of)} |"
        for (direction, split_k), of in groups.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
