"""``tileseer status``: progress of a workflow, and the time that the measurements still take."""

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from tileseer.cli import options
from tileseer.cli.run_view import Jobs
from tileseer.client import status
from tileseer.compile import cost
from tileseer.core import events
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
        "--watch", type=float, default=0.0, metavar="SECONDS",
        help="look again and again until all is validated and no run is at work",
    )  # fmt: skip
    parser.epilog = "Shows which results exist; `snakemake -n` shows which are out of date."


def run(args: argparse.Namespace) -> int:
    """Print a row an operation; return 1 while one has no validated model."""
    runs: dict[Path, Jobs] = {}
    before: dict[str, status.OperationStatus] = {}
    start = time.monotonic()
    while True:
        runs = _at_work(args.results, runs)
        begins = args.watch and runs and not _first_files(args.results, args.arch or "*")
        arch = args.arch or (next(iter(runs.values())).arch if begins else _only_arch(args.results))
        operations = [] if begins else _operations(args.results, arch)
        found = [status.of_operation(args.results, arch, operation) for operation in operations]
        seconds = time.monotonic() - start
        etas = [
            status.eta_seconds(before[row.operation], row, seconds) if row.operation in before else None
            for row in found
        ]
        unfinished = not found or any(row.mean_efficiency is None for row in found)
        if not (args.watch and (unfinished or runs)):
            break
        if not args.json:
            print("\n".join([*_table(found, etas), *_told(runs), ""]), flush=True)
        before, start = {row.operation: row for row in found}, time.monotonic()
        time.sleep(args.watch)
    published = (args.results / "models" / arch / "index.json").exists()
    rows = [asdict(row) | {"eta_seconds": eta} for row, eta in zip(found, etas, strict=True)]
    said = f"models of {arch}: {'published' if published else 'not published yet'}"
    content = {"arch": arch, "published": published, "operations": rows}
    lines = [f"{arch}, chunks done", *_table(found, etas), *_told(runs)]
    if seconds := sum(row.compile_seconds for row in found):
        lines.append(f"the kernels' builds took {cost.took(seconds, sum(row.code_bytes for row in found))}")
    return options.answer(args, content, [*lines, said], unfinished)


def _at_work(results: Path, known: Mapping[Path, Jobs]) -> dict[Path, Jobs]:
    """The runs of this folder whose process is alive on this machine, each read up to now."""
    files = sorted((results.absolute().parent / ".snakemake").glob(events.FILE.format("*")))
    alive = {path: known.get(path) or Jobs(path) for path in files if Path("/proc", path.suffix[1:]).exists()}
    for jobs in alive.values():
        list(jobs.read())
    return alive


def _told(runs: Mapping[Path, Jobs]) -> Iterator[str]:
    """What each run does now, a line a job, with the time that it still takes."""
    for jobs in runs.values():
        yield f"{jobs.done()} of {jobs.planned or 'not yet known'} jobs done; at work:"
        for job in jobs.unfinished():
            # How long a job without progress has worked is not known: it may have begun before the first look.
            yield "  " + " ".join(filter(None, job.cells() if job.progress else job.cells()[:3]))


def _only_arch(results: Path) -> str:
    # Beside the arch of a plan there can be datasets of others, which its models are compared with.
    planned = {path.parent.name for path in results.glob("configs/*/*.plan.tsv")}
    archs = sorted(planned or {path.parent.name for path in _first_files(results, "*")})
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
    stages = [stage for stage in status.CHUNKED if any(row.chunks and stage in row.chunks_done for row in found)]
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
