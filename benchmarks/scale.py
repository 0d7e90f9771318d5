#!/usr/bin/env python3
"""How the workflow grows: the graph with chunks, the dataset stage with measurements. Writes docs/generated/scale.md.

The graph is that of the real rules with jobs that only write their outputs: a stand-in for Python, first in PATH,
writes the files that a command line names, so what remains is Snakemake and our rules. The dataset stage is the real
one, on journals of measurements that nobody made: numbers from a generator with a fixed seed, labelled simulated.

CPU seconds are those of a process and of all that it started; on a busy machine they say more than the wall clock.
Memory is the largest resident set of any one process.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

from tileseer.build import build
from tileseer.core import documents, parquet
from tileseer.measure import journal, receipt, support_table
from tileseer.measure.device import STATUSES
from tileseer.measure.journal import IDENTITY
from tileseer.problems import problem_table
from tileseer.problems.problem import DIMS, Problem
from tileseer.problems.problem_table import ProblemEntry

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "config", "envs", "profiles", "src", "workflow")
ARCH, OPERATION = "gfx950", "forward_bf16"
TARGET = f"results/datasets/{ARCH}/{OPERATION}/pairs.parquet"
PROBLEMS = 1_000
PAIRS_A_CHUNK = 100_000
STAND_IN = """\
#!/bin/sh
# Writes every output that the command line of a stage names: what is not there.
for word; do
    case "$word" in
    results/journals/*) ;;
    results/datasets/*) for name in problems.parquet kernels.parquet pairs.parquet recording.json quarantine.tsv; do
        echo x > "$word/$name"
    done ;;
    results/*) [ -e "$word" ] || echo x > "$word" ;;
    esac
done
"""


def used(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Run a command to its end; return its CPU seconds, wall seconds and peak MiB; its output is in ``run.log``."""
    start = time.monotonic()
    child = os.posix_spawnp(
        "/bin/sh", ["sh", "-c", 'cd "$0" && exec "$@" > run.log 2>&1', str(folder), *command], dict(environment)
    )
    _, status, usage = os.wait4(child, 0)
    wall = time.monotonic() - start
    if status:
        sys.exit(f"error: {' '.join(command[:4])}: status {status}\n{(folder / 'run.log').read_text()[-3000:]}")
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": wall, "peak_mib": usage.ru_maxrss / 1024}


def graph(chunks: int, runs: bool) -> dict[str, float]:
    """What a dry run of so many chunks takes; if the graph ``runs``, also a first run and one with nothing to do."""
    with tempfile.TemporaryDirectory(prefix="tileseer-scale-") as name:
        folder = Path(name)
        for part in PARTS:
            source = ROOT / part
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, folder / part, ignore=ignore) if source.is_dir() else shutil.copy(source, folder)
        config = {"operations": [OPERATION], "configs": {"chunks": chunks}, "lock": {"folder": str(folder / "locks")}}
        (folder / "config/config.yaml").write_text(yaml.safe_dump(config))
        (folder / "stand_in").mkdir()
        (folder / "stand_in/python").write_text(STAND_IN)
        (folder / "stand_in/python").chmod(0o755)
        path = os.pathsep.join((str(folder / "stand_in"), str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = os.environ | {"PATH": path}
        command = ["snakemake", "--quiet", "rules", "--cores", "2", TARGET]
        dry = used([*command, "--dry-run", "--quiet"], folder, environment)
        found = {"chunks": chunks, "dry_cpu_s": dry["cpu_s"], "dry_mib": dry["peak_mib"]}
        if not runs:
            return found
        first = used(command, folder, environment)
        jobs = len(re.findall(r"^Finished jobid", (folder / "run.log").read_text(), re.M))
        again = used(command, folder, environment)
        if "Nothing to be done" not in (folder / "run.log").read_text():
            sys.exit("error: the second run had something to do")
    return found | {
        "jobs": jobs,
        "first_cpu_s": first["cpu_s"],
        "job_ms": 1000 * (first["cpu_s"] - again["cpu_s"]) / jobs,
        "again_cpu_s": again["cpu_s"],
        "again_wall_s": again["wall_s"],
        "peak_mib": first["peak_mib"],
    }


def dataset(pairs: int, pairs_a_chunk: int) -> dict[str, float]:
    """Return what the dataset stage takes for so many measurements, in chunks of ``pairs_a_chunk``."""
    chunks = max(1, pairs // pairs_a_chunk)
    with tempfile.TemporaryDirectory(prefix="tileseer-scale-") as name:
        folder = Path(name)
        # In a process of its own: memory that this one has held would count as the stage's.
        made = ["--make", str(folder), "--measurements", str(pairs), "--pairs-a-chunk", str(pairs_a_chunk)]
        used([sys.executable, __file__, *made], folder, os.environ)
        files = {
            kind: [f"{kind}/{chunk}.{end}" for chunk in range(chunks)]
            for kind, end in (("build", "parquet"), ("support", "parquet"), ("receipts", "json"))
        }
        command = [
            sys.executable, str(ROOT / "workflow/scripts/dataset.py"), "--arch", ARCH, "--operation", OPERATION,
            "--problems", "problems.parquet", *(word for kind in files for word in (f"--{kind}", *files[kind])),
            "--dataset", "dataset",
        ]  # fmt: skip
        spent = used(command, folder, os.environ)
        size = sum(path.stat().st_size for path in (folder / "dataset").iterdir())
    return {"measurements": pairs, "chunks": chunks, "dataset_mib": size / 2**20} | spent


def make_measurements(folder: Path, pairs: int, pairs_a_chunk: int) -> None:
    """Write the files that the dataset stage reads, for ``pairs`` measurements of ``PROBLEMS`` problems."""
    draw = np.random.default_rng(1)
    shapes = [(8 * c, 64 * k, s) for c in range(1, 11) for k in range(1, 11) for s in range(7, 17)]
    entries = [
        ProblemEntry(Problem.from_dims("forward", "bf16", C=c, K=k, Hi=s, Wi=s), "grid", "") for c, k, s in shapes
    ]
    problems = problem_table.problem_table(entries[:PROBLEMS], [])
    parquet.write_table(problems, folder / "problems.parquet")
    keys = problems["problem_key"].to_pylist()
    kernels = pairs // PROBLEMS
    chunks = max(1, pairs // pairs_a_chunk)
    for chunk in range(chunks):
        numbers = range(chunk, kernels, chunks)
        rows = [_built(number) for number in numbers]
        parquet.write_table(pa.Table.from_pylist(rows, schema=build.SCHEMA), folder / f"build/{chunk}.parquet")
        kernel_ids = [row["kernel_id"] for row in rows]
        problem, kernel = (index.ravel().astype(np.int32) for index in np.indices((PROBLEMS, len(rows))))
        words = [(kernel, kernel_ids), (problem, keys), (np.zeros(len(kernel), np.int32), [support_table.SUPPORTED])]
        named = [pa.DictionaryArray.from_arrays(pa.array(index), pa.array(names)) for index, names in words]
        support = [named[0], pa.array(np.ones(len(kernel), np.int32)), named[1], named[2]]
        table = pa.table(support, schema=support_table.SCHEMA)
        parquet.write_table(table, folder / f"support/{chunk}.parquet")
        _measure(folder, chunk, table, problems, [row["kernel"] for row in rows], (problem, kernel), draw)


def _built(number: int) -> dict[str, object]:
    """Return a row of a build table: what an estimate without a compiler holds."""
    empty = dict.fromkeys(build.SCHEMA.names)
    return empty | {
        "kernel": f"kernel_{number}", "kernel_id": f"{number:016x}", "split_k": [1], "build_status": "ok",
        "build_reason": "", "error_digest": "", "code_hash": "", "resources_from": "estimated",
        "vgprs": 128.0, "lds_bytes": 65536, "occupancy": 2.0,
    }  # fmt: skip


def _measure(
    folder: Path,
    chunk: int,
    support: pa.Table,
    problems: pa.Table,
    kernels: list[str],
    index: tuple[np.ndarray, np.ndarray],
    draw: np.random.Generator,
) -> None:
    """Write the journal and the receipt of a chunk: every pair measured, with a drawn time."""
    problem, kernel = index
    count = len(problem)
    latency = np.round(draw.lognormal(-2, 1, count), 6)
    constant = {
        "non_zero": pa.nulls(count, pa.int64()), "sentinel": pa.nulls(count, pa.float64()),
        "rank": pa.nulls(count, pa.int32()), "status": STATUSES[0],
        "error": "", "samples": 10, "latency_cv": 0.01,
        "arch": ARCH, "device": "none", "device_kind": "simulated", "seed": 1, "measurement_id": "0" * 16,
    }  # fmt: skip
    columns = {name: pa.repeat(value, count) if np.isscalar(value) else value for name, value in constant.items()}
    columns |= {name: problems[name].combine_chunks().take(pa.array(problem)) for name in DIMS}
    columns |= {name: support[name].cast(journal.SCHEMA.field(name).type) for name in IDENTITY}
    columns |= {
        "kernel": pa.array(kernels).take(pa.array(kernel)), "problem_idx": problem,
        "latency_ms": latency, "tflops": np.round(1 / latency, 6),
    }  # fmt: skip
    rows = pa.table({name: columns[name] for name in journal.SCHEMA.names}).cast(journal.SCHEMA)
    path = folder / f"{chunk}.csv"
    book = journal.Journal(path)
    book.append(rows)
    book.compress()
    book.close()
    (folder / "receipts").mkdir(exist_ok=True)
    vouched = receipt.Receipt(
        arch=ARCH, operation=OPERATION, chunk=chunk, device="none", device_kind="simulated", measurement_id="0" * 16,
        journal=path.name, pairs=count, by_status={"ok": count}, malformed_lines=0,
        rows_sha256=receipt.digest_rows(rows),
    )  # fmt: skip
    documents.write_document(folder / f"receipts/{chunk}.json", vouched)


def graph_table(rows: Sequence[Mapping[str, float]]) -> str:
    """Figures of the graph as a Markdown table."""
    lines = [
        "| chunks | dry run, CPU s | memory, MiB | jobs | first run, CPU s | CPU ms a job | no-op, CPU s "
        "| no-op, wall s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        run = "| – " * 5
        if "jobs" in r:
            run = (
                f"| {r['jobs']:,} | {r['first_cpu_s']:.1f} | {r['job_ms']:.0f} "
                f"| {r['again_cpu_s']:.1f} | {r['again_wall_s']:.1f} "
            )
        lines.append(f"| {r['chunks']:,} | {r['dry_cpu_s']:.1f} | {r['dry_mib']:.0f} {run}|")
    return "\n".join(lines) + "\n"


def dataset_table(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the figures of the dataset stage as a Markdown table."""
    lines = [
        "| measurements | chunks | CPU s | µs a measurement | memory, MiB | dataset, MiB |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['measurements']:,} | {r['chunks']:,} | {r['cpu_s']:.1f} "
        f"| {1e6 * r['cpu_s'] / r['measurements']:.0f} | {r['peak_mib']:.0f} | {r['dataset_mib']:.1f} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def fill_in(page: Path, mark: str, text: str) -> None:
    """Replace what stands between two marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"<!-- end of {mark} -->")
    if not end:
        sys.exit(f"error: {page}: there are no marks for {mark}")
    page.write_text(before + begin + text + end + after, encoding="utf-8")


def main() -> None:
    """Measure every size, print the tables, and write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="*", default=[10, 100, 500, 1_000, 2_000])
    parser.add_argument("--run-chunks", type=int, default=500, help="more chunks are planned and not run")
    parser.add_argument("--measurements", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--pairs-a-chunk", type=int, default=PAIRS_A_CHUNK, help="of the dataset stage")
    parser.add_argument("--page", type=Path, help="Markdown page whose tables are replaced")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        make_measurements(args.make, args.measurements[0], args.pairs_a_chunk)
        return
    datasets = [dataset(pairs, args.pairs_a_chunk) for pairs in args.measurements]
    print(dataset_table(datasets), flush=True)
    graphs = [graph(chunks, chunks <= args.run_chunks) for chunks in args.chunks]
    print(graph_table(graphs), flush=True)
    if args.page:
        fill_in(args.page, "graph", graph_table(graphs))
        fill_in(args.page, "dataset", dataset_table(datasets))


if __name__ == "__main__":
    main()
