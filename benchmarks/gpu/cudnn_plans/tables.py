"""Make a recording of the journals that runs of ``cudnn_plans.record`` left.

Beside the tables of every recording (``dataset.recording``) an operation has ``rivals.parquet``: the library's own
choice and PyTorch, in turns with the fastest plans.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cudnn_plans import journal
from cudnn_plans.case import BENCHMARK, COLUMNS, DEFAULT, Limits
from tileseer.conv.problem import FIELDS, Problem
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.dataset import recording
from tileseer.families.grammar import SPELLED
from tileseer.problems import problem_table

PAIRS = pa.schema(
    [
        *(
            recording.PAIRS.field(name)
            for name in (
                "problem", "kernel", "split_k", "status", "samples", "p10_us", "median_us", "p90_us", "cv", "brief",
                "worst", "sm_clock_mhz", "gpu",
            )
        ),
        ("rank", pa.int16()),
        ("workspace", pa.int64()),
        ("error", pa.float32()),
        ("turns", pa.int8()),
        ("short_us", pa.float32()),
    ]
)  # fmt: skip
"""As in every recording, and: ``rank``, the plan's place in the library's own order; ``workspace`` bytes;
``error``, relative to fp32 (Frobenius); ``turns`` of the contest, 0 without; ``short_us``, the median of the samples
before it. The other times are of the contest where there was one."""
RIVALS = pa.schema(
    [
        ("problem", pa.int32()),
        ("first", pa.int32()),
        ("first_us", pa.float32()),
        ("best_us", pa.float32()),
        ("torch_us", pa.float32()),
        ("torch_benchmark_us", pa.float32()),
        ("torch_error", pa.float32()),
        ("torch_benchmark_error", pa.float32()),
        ("turns", pa.int8()),
    ]
)
"""Medians of the contest; ``first`` is the row of the kernel that is the library's own choice, -1 without."""


def kernel_name(problem: Problem, plan: str) -> str:
    """Name of a plan as a kernel."""
    return f"cudnn_conv_{SPELLED.get(problem.variant, problem.variant)}_{problem.dtype}_{problem.ndim}d_{plan}"


def listed(path: Path) -> dict[str, tuple[Problem, dict[str, str]]]:
    """Name of a case to its problem and its row of the list."""
    with lzma.open(path, "rt") as file:
        rows = pd.read_csv(file, dtype=str, keep_default_na=False).to_dict("records")
    found = {}
    for row in rows:
        values = [row[field] if field in ("variant", "dtype") else int(row[field]) for field in FIELDS]
        found[f"{row['variant']}_{row['dtype']}/{row['problem_key']}"] = (Problem(*values), row)
    return found


def measured(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The cases of the journals, each once: the first that was not given up."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for event in journal.read(path):
            if event["event"] == "case" and ("failed" in found.get(event["case"], {"failed": ""})):
                found[event["case"]] = event
    yield from found.values()


def operation_tables(
    cases: Sequence[dict[str, Any]], known: dict[str, tuple[Problem, dict[str, str]]]
) -> dict[str, pa.Table]:
    """The tables of one operation, by name."""
    cases = sorted(cases, key=lambda event: event["case"])
    names = {kernel_name(known[event["case"]][0], row[1]) for event in cases for row in event.get("plans", ())}
    kernels = sorted(names)
    number = {name: place for place, name in enumerate(kernels)}
    problems, pairs, rivals = [], [], []
    for place, event in enumerate(cases):
        problem, row = known[event["case"]]
        first = [row["problem_key"], problem.layer_family, row["split"], row["network"], row["layer"]]
        problems.append([*first, *(getattr(problem, field) for field in FIELDS)])
        if "failed" in event:
            continue
        plans = [dict(zip(COLUMNS, plan, strict=True)) for plan in event["plans"]]
        contest = event["contest"]
        of_rank = {plan["rank"]: number[kernel_name(problem, plan["name"])] for plan in plans}
        pairs += [_pair(place, of_rank[plan["rank"]], plan, contest, event["gpu"]) for plan in plans]
        rivals.append(_rivals(place, of_rank, contest))
    return {
        "kernels": pa.table({"kernel": kernels, "build_status": ["ok"] * len(kernels)}),
        "problems": _table(problems, problem_table.SCHEMA),
        "pairs": _table(sorted(pairs), PAIRS),
        "rivals": _table(rivals, RIVALS),
    }


def _pair(problem: int, kernel: int, plan: dict[str, Any], contest: dict[str, Any], gpu: int) -> list[Any]:
    """A row of ``PAIRS``."""
    turns = contest["us"].get(str(plan["rank"]), [])
    us = np.array(turns or plan["us"] or [np.nan])
    cv = us.std(ddof=1) / us.mean() if len(us) > 1 else 0.0
    quantiles = np.quantile(us, [0.1, 0.5, 0.9])
    # The library tells the workspace, so that a selector knows before which plans need too much.
    too_much = plan["status"] == "skipped" and plan["workspace"] > Limits().workspace
    return [
        problem, kernel, 1, "unsupported" if too_much else plan["status"], len(turns) + len(plan["us"]), *quantiles, cv,
        bool(plan["brief"]), np.nan if plan["worst"] is None else plan["worst"], plan["mhz"] or np.nan, gpu,
        plan["rank"], plan["workspace"], np.nan if plan["error"] is None else plan["error"], len(turns),
        statistics.median(plan["us"]) if plan["us"] else np.nan,
    ]  # fmt: skip


def _rivals(problem: int, of_rank: dict[int, int], contest: dict[str, Any]) -> list[Any]:
    """A row of ``RIVALS``."""
    medians = {name: statistics.median(row) for name, row in contest["us"].items()}
    own = [us for name, us in medians.items() if name.isdigit()]
    first = contest["first"]
    errors = [(contest["errors"].get(name) or [np.nan])[0] for name in (DEFAULT, BENCHMARK)]
    return [
        problem, -1 if first is None else of_rank[first], medians.get(str(first), np.nan), min(own, default=np.nan),
        medians.get(DEFAULT, np.nan), medians.get(BENCHMARK, np.nan),
        *(np.nan if error is None else error for error in errors),
        max(map(len, contest["us"].values()), default=0),
    ]  # fmt: skip


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    frame = pd.DataFrame(rows, columns=schema.names)
    return pa.Table.from_pandas(frame, schema, preserve_index=False)


def about(paths: Sequence[Path], operations: Sequence[str], notes: Sequence[str]) -> dict[str, Any]:
    """The description of the recording."""
    gpus = [event for path in paths for event in journal.read(path) if event["event"] == "gpu"]
    if not gpus:
        raise UserError(f"{paths[0]}: it names no GPU")
    same = {
        field: sorted({str(event[field]) for event in gpus})
        for field in ("gpu", "driver", "cudnn", "frontend", "torch")
    }
    if len(same["cudnn"]) > 1:
        raise UserError(f"the journals are of several versions of cuDNN: {', '.join(same['cudnn'])}; give those of one")
    return {
        "arch": "sm_90_cudnn",
        "device": "sm_90_h200",
        "operations": list(operations),
        "library": f"cudnn {same['cudnn'][0]}",
        "between_runs": {},
        "latency": "median of samples between device events, each a row of launches; operands cold",
        "provenance": {
            **{field: ", ".join(values) for field, values in same.items()},
            "boards": str(len({event["uuid"] for event in gpus})),
            "harness": "benchmarks/gpu/cudnn_record.sh",
            "clocks": "not locked",
            **dict(note.split("=", 1) for note in notes),
        },
    }


@reports_user_errors
def main() -> None:
    """Write the recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=Path("benchmarks/gpu/cudnn_cases.csv.xz"))
    parser.add_argument("--journals", required=True, type=Path, help="folder with the files cases.*.jsonl.xz")
    parser.add_argument("--output", required=True, type=Path, help="folder of the recording")
    parser.add_argument("--note", action="append", default=[], metavar="FIELD=TEXT", help="provenance, repeatable")
    args = parser.parse_args()

    paths = journal.files([args.journals])
    if not paths:
        raise UserError(f"{args.journals}: there is no {journal.PATTERN}")
    known = listed(args.cases)
    of: dict[str, list[dict[str, Any]]] = {}
    for event in measured(paths):
        of.setdefault(event["case"].partition("/")[0], []).append(event)
    for operation, cases in sorted(of.items()):
        for name, table in operation_tables(cases, known).items():
            path = args.output / operation / f"{name}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", compression_level=19)
        print(f"{operation}: {len(cases)} cases", flush=True)
    write_text(args.output / "recording.json", json.dumps(about(paths, sorted(of), args.note), indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
