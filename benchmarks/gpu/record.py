#!/usr/bin/env python3
"""Make a recorded device out of what a workflow measured on GPUs: its results, journals and details logs.

It runs where the logs are, which are too large to take home. What it writes is what ``config/recorded`` holds, and a
log of the jobs: which GPU each had when, and how many pairs it measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.dataset import provenance, recording
from tileseer.measure import journal, receipt, repeats
from tileseer.measure.harness.details import read_details
from tileseer.problems.problem import FIELDS

KEY = ["kernel", "split_k", "problem_key"]
TEXTS = ("variant", "dtype")
QUANTILES = ["p10_us", "median_us", "p90_us"]
KERNELS = pa.schema(
    [
        ("kernel", pa.string()),
        ("build_status", pa.string()),
        ("registers", pa.int32()),
        ("local_bytes", pa.int32()),
        ("shared_bytes", pa.int32()),
        ("blocks", pa.int32()),
        ("object_sha256", pa.string()),
    ]
)
"""``registers`` and ``local_bytes`` a thread, ``shared_bytes`` a block, ``blocks`` resident on a multiprocessor."""


def write(table: pa.Table, path: Path) -> None:
    """Write a table as small as Parquet makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", compression_level=19)


def attempts(log: Path) -> Iterator[dict[str, Any]]:
    """Yield one row an attempt at a pair, with the state of the GPU when its batch closed."""
    batch: list[dict[str, Any]] = []
    gpu = ""
    for event in read_details(log):
        match event["event"]:
            case "session":
                gpu = event["device"]["uuid"]
            case "pair":
                batch.append(event | {"gpu": gpu})
            case "batch":
                yield from (_row(pair, event) for pair in batch)
                batch.clear()
    yield from (_row(pair, None) for pair in batch)


def _row(event: dict[str, Any], batch: dict[str, Any] | None) -> dict[str, Any]:
    result, check = event.get("result") or {}, event.get("check") or {}
    samples = np.array(event.get("samples_ms") or [np.nan]) * 1000
    after = (batch or {}).get("after", {})
    cv = samples.std(ddof=1) / samples.mean() if len(samples) > 1 else 0.0
    return {
        **{field: event[field] for field in KEY},
        "samples": result.get("samples", 0),
        "p10_us": np.quantile(samples, 0.1),
        "median_us": 1000 * result.get("median_ms", np.nan),
        "p90_us": np.quantile(samples, 0.9),
        "cv": cv,
        "brief": result.get("stop") == 3,
        "noise": result.get("noise", np.nan),
        "worst": check.get("worst", np.nan),
        "error": check.get("relative_error", np.nan),
        "workspace": result.get("workspace_bytes", 0),
        "sm_clock_mhz": result.get("clock_mhz", np.nan),
        "sentinel": (batch or {}).get("drift") or np.nan,
        "power_w": after.get("power_w") or np.nan,
        "temperature_c": after.get("temperature_c") or np.nan,
        "gpu": event["gpu"],
    }


def problem_rows(path: Path) -> pa.Table:
    """Return the problems of the problems stage in the form of a recording."""
    frame = parquet.read_table(path).to_pandas()
    first = ["problem_key", "layer_family", "split", "network", "layer"]
    table = pa.Table.from_pandas(frame[[*first, *FIELDS]], preserve_index=False)
    types = [pa.string() if name in first or name in TEXTS else pa.int32() for name in table.column_names]
    return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))


def kernel_rows(folder: Path) -> pa.Table:
    """Return the kernels of the chunks' build tables, by name."""
    parts = [parquet.read_table(path).to_pandas() for path in sorted(folder.glob("*[0-9].parquet"))]
    built = pd.concat(parts).sort_values("kernel", ignore_index=True)
    columns = {
        "kernel": built["kernel"],
        "build_status": built["build_status"],
        "registers": built["vgprs"],
        "local_bytes": built["scratch_bytes"],
        "shared_bytes": built["lds_bytes"],
        "blocks": built["occupancy"],
        "object_sha256": built["code_hash"],
    }
    types = {field.name: field.type for field in KERNELS}
    return pa.table({name: pa.array(column).cast(types[name]) for name, column in columns.items()})


def chunk_rows(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what the journals of a receipt count, and what the details log says of every attempt.

    ``both_ms`` is the mean of both times where a pair was measured again.
    """
    vouched = receipt.Receipt.read(path)
    first = Path(vouched.journal)
    rows, _ = journal.read_journal(first, vouched.measured_by)
    second = repeats.NOTHING
    if vouched.repeats:
        second = repeats.counted(journal.read_journal(repeats.repeats_journal(first), vouched.measured_by)[0], rows)
    both = repeats.combined(rows, second)["latency_ms"].to_numpy()
    frame = rows.to_pandas().assign(both_ms=both)
    passing = frame["status"].astype(str).isin(receipt.PASSING)
    frame = pd.concat([frame[~passing], frame[passing]]).drop_duplicates(KEY)
    return frame[[*KEY, "status", "latency_ms", "both_ms"]], pd.DataFrame(attempts(first.with_suffix(".details.jsonl")))


def pair_rows(results: Path, arch: str, operation: str) -> pd.DataFrame:
    """Return one row a measured pair: what the journal counts, with what the details log says of its last attempt."""
    receipts = sorted((results / "benchmark" / arch / operation).glob("*.json"))
    with ProcessPoolExecutor() as pool:
        counted, told = zip(*pool.map(chunk_rows, receipts), strict=True)
    # An attempt that was repeated counts where it was the one that the journal has.
    last = pd.concat(told).assign(latency_ms=lambda t: t["median_us"] / 1000).drop_duplicates(KEY, keep="last")
    pairs = pd.concat(counted).merge(last, on=KEY, how="left", suffixes=("", "_told"))
    ok = pairs["status"].astype(str) == "ok"
    apart = ok & ~np.isclose(pairs["latency_ms"], pairs["latency_ms_told"], rtol=1e-4)
    if apart.any():
        raise UserError(f"{operation}: {apart.sum()} times of the journal are not those of the details log")
    pairs[QUANTILES] = pairs[QUANTILES].mul(pairs["both_ms"] / pairs["latency_ms"], axis=0)
    return pairs


def record(results: Path, arch: str, operation: str, output: Path) -> str:
    """Write the three tables of one operation; return a line about them."""
    problems = problem_rows(results / f"problems/{operation}.parquet")
    kernels = kernel_rows(results / f"build/{arch}/{operation}")
    pairs = pair_rows(results, arch, operation)
    numbers = {name: {text: i for i, text in enumerate(table[name].to_pylist())} for name, table in
               (("kernel", kernels), ("problem_key", problems))}  # fmt: skip
    pairs["problem"] = pairs["problem_key"].astype(str).map(numbers["problem_key"])
    pairs["kernel"] = pairs["kernel"].astype(str).map(numbers["kernel"])
    boards = sorted(pairs["gpu"].dropna().unique())
    pairs["gpu"] = pairs["gpu"].map({uuid: i for i, uuid in enumerate(boards)}).fillna(-1)
    pairs["samples"] = pairs["samples"].fillna(0)
    pairs["brief"] = pairs["brief"].fillna(False).astype(bool)
    pairs = pairs.sort_values(["problem", "kernel", "split_k"])[recording.PAIRS.names]
    write(kernels, output / operation / "kernels.parquet")
    write(problems, output / operation / "problems.parquet")
    write(pa.Table.from_pandas(pairs, recording.PAIRS, preserve_index=False), output / operation / "pairs.parquet")
    counts = pairs["status"].astype(str).value_counts().to_dict()
    return f"{operation}: {kernels.num_rows} kernels, {problems.num_rows} problems, {len(pairs)} pairs, {counts}"


def between_runs(results: Path, arch: str, operations: list[str]) -> dict[str, Any]:
    """Return what the datasets know of the noise between runs, by operation."""
    known = {}
    for operation in operations:
        path = results / f"datasets/{arch}/{operation}.parquet"
        told = provenance.provenance_of(parquet.read_table(path), path)
        known |= {operation: told.between_runs.model_dump()} if told.between_runs else {}
    return known


def sessions(results: Path, arch: str) -> list[str]:
    """Return a line a session of a job: its GPU, begin, end and pairs; then whether two were on one GPU at a time."""
    spans = []
    root = Path(results, "journals", arch)
    for log in sorted(root.rglob("*.details.jsonl")):
        job = log.relative_to(root).as_posix().removesuffix(".details.jsonl")
        found: list[list[Any]] = []
        for event in read_details(log):
            if event["event"] == "session":
                begin = pd.Timestamp(event["time"]) - pd.Timedelta(seconds=event["at"])
                found.append([begin, begin, event["device"]["uuid"], job, 0])
            found[-1][1] = found[-1][0] + pd.Timedelta(seconds=event["at"])
            found[-1][4] += event["event"] == "pair"
        spans += found
    if not spans:
        return ["no session"]
    start, end = min(span[0] for span in spans), max(span[1] for span in spans)
    boards = sorted({span[2] for span in spans})
    lines = []
    for a, b, uuid, job, pairs in sorted(spans):
        from_s, to_s = ((moment - start).total_seconds() for moment in (a, b))
        lines.append(f"gpu {boards.index(uuid)} job {job}: {from_s:.1f} to {to_s:.1f} s, {pairs} pairs")
    for number, board in enumerate(boards):
        own = sorted((a, b, pairs) for a, b, uuid, _, pairs in spans if uuid == board)
        overlaps = sum(later[0] < earlier[1] for earlier, later in pairwise(own))
        busy = sum((b - a).total_seconds() for a, b, _ in own)
        rate = sum(pairs for *_, pairs in own) / max(busy, 1e-9)
        lines.append(
            f"gpu {number}: {len(own)} sessions, {overlaps} overlaps, busy {busy:.1f} s, {rate:.1f} pairs a second"
        )
    total = sum(span[4] for span in spans)
    seconds = (end - start).total_seconds()
    lines.append(f"together: {total} pairs in {seconds:.1f} s, {total / max(seconds, 1e-9):.1f} pairs a second")
    return lines


@reports_user_errors
def main() -> None:
    """Record every operation that was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--device", default="sm_90_h200", help="product of config/hardware.yaml")
    parser.add_argument("--note", action="append", default=[], metavar="FIELD=TEXT", help="provenance, repeatable")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="folder of the recording")
    what.add_argument("--jobs", action="store_true", help="print the log of the jobs, record nothing")
    args = parser.parse_args()

    if args.jobs:
        print(*sessions(args.results, args.arch), sep="\n")
        return
    operations = sorted(path.name for path in (args.results / "benchmark" / args.arch).iterdir())
    for operation in operations:
        print(record(args.results, args.arch, operation, args.output), flush=True)
    log = next(Path(args.results, "journals", args.arch).glob("*/*.details.jsonl"))
    session = next(event for event in read_details(log) if event["event"] == "session")
    about = {
        "arch": args.arch,
        "device": args.device,
        "operations": operations,
        "between_runs": between_runs(args.results, args.arch, operations),
        "latency": "median of samples between device events, each a row of launches; operands "
        + session["method"]["cache"],
        "provenance": {
            "method": json.dumps(session["method"], sort_keys=True),
            "driver": f"tileseer {session['device']['version']}",
            "date": session["time"][:10],
            **dict(note.split("=", 1) for note in args.note),
        },
    }
    write_text(args.output / recording.FILE, json.dumps(about, indent=2) + "\n")
    print(*sessions(args.results, args.arch), sep="\n")


if __name__ == "__main__":
    raise SystemExit(main())
