"""``tileseer status``: progress of a workflow, and the time that the measurements still take."""

import argparse
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from tileseer.cli import options
from tileseer.client import status
from tileseer.compile import cost
from tileseer.core.errors import UserError

EXAMPLES = (
    "tileseer status",
    "tileseer status gfx950 --results results --watch 10",
    "tileseer status gfx950 --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("arch", nargs="?", help="for example gfx950 (default: the only one in the results)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results (default: results)")
    parser.add_argument(
        "--watch", type=float, default=0.0, metavar="SECONDS", help="look again and again until all is validated"
    )
    parser.epilog = "Shows which results exist; `snakemake -n` shows which are out of date."


def run(args: argparse.Namespace) -> int:
    """Print a row an operation; return 1 while one has no validated model."""
    arch = args.arch or _only_arch(args.results)
    operations = _operations(args.results, arch)

    def look() -> list[status.OperationStatus]:
        return [status.of_operation(args.results, arch, operation) for operation in operations]

    found = look()
    etas: list[float | None] = [None] * len(found)
    while args.watch > 0 and any(row.mean_efficiency is None for row in found):
        if not args.json:
            print("\n".join([*_table(found, etas), ""]), flush=True)
        before, start = found, time.monotonic()
        time.sleep(args.watch)
        found, seconds = look(), time.monotonic() - start
        etas = [status.eta_seconds(old, new, seconds) for old, new in zip(before, found, strict=True)]
    published = (args.results / "models" / arch / "index.json").exists()
    rows = [asdict(row) | {"eta_seconds": eta} for row, eta in zip(found, etas, strict=True)]
    lines = [f"{arch}, chunks done", *_table(found, etas)]
    if seconds := sum(row.compile_seconds for row in found):
        lines.append(f"the kernels' builds took {cost.took(seconds, sum(row.code_bytes for row in found))}")
    said = f"models of {arch}: {'published' if published else 'not published yet'}"
    content = {"arch": arch, "published": published, "operations": rows}
    unfinished = any(row.mean_efficiency is None for row in found)
    return options.answer(args, content, [*lines, said], unfinished)


def _only_arch(results: Path) -> str:
    archs = sorted({path.parent.name for path in _first_files(results, "*")})
    if len(archs) != 1:
        found = f"there are {', '.join(archs)}: name one" if archs else "nothing has been made yet: run snakemake"
        raise UserError(f"{results}: {found}")
    return archs[0]


def _operations(results: Path, arch: str) -> list[str]:
    operations = sorted({path.name.partition(".")[0] for path in _first_files(results, arch)})
    if not operations:
        raise UserError(f"{results}: there is no plan and no dataset of {arch}; run snakemake")
    return operations


def _first_files(results: Path, arch: str) -> list[Path]:
    """Of each operation the first file that is made: its plan, or of a recording its dataset."""
    return [*results.glob(f"configs/{arch}/*.plan.tsv"), *results.glob(f"datasets/{arch}/*.parquet")]


def _table(found: list[status.OperationStatus], etas: list[float | None]) -> list[str]:
    stages = [stage for stage in status.CHUNKED if any(stage in row.chunks_done for row in found)]
    rows = []
    for row, eta in zip(found, etas, strict=True):
        done = sum(row.pairs_by_status.values())
        rows.append([
            row.operation,
            *(f"{row.chunks_done.get(stage, 0)}/{row.chunks}" for stage in stages),
            f"{done:,}/{row.pairs_to_measure:,}",
            f"{done - row.pairs_by_status.get('ok', 0):,}",
            ", ".join(row.stages_done) or "-",
            "-" if row.mean_efficiency is None else f"{row.mean_efficiency:.1f} %",
            "-" if eta is None else str(timedelta(seconds=round(eta))),
        ])  # fmt: skip
    return options.table_lines(["operation", *stages, "pairs", "failed", "then", "efficiency", "ETA"], rows)
