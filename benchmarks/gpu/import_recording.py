#!/usr/bin/env python3
"""Make a recorded device out of the journals that came back from the GPU machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tilewright import problem as problem_tables
from tilewright import recording
from tilewright.atomic import write_text
from tilewright.problem import FIELDS

JOURNAL = (
    "problem", "candidate", "status", "code", "samples", "min_us", "p10_us", "median_us", "p90_us", "mean_us", "cv",
    "error", "worst", "brief",
)  # fmt: skip
TEXTS = ("variant", "dtype")


def write(table: pa.Table, path: Path) -> None:
    """Write a table as small as Parquet makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", compression_level=19)


def problem_rows(index: dict[str, list]) -> pa.Table:
    """Return the problems of an index in the form of the problems stage."""
    frame = pd.DataFrame(index)
    keys = problem_tables.frame(problem_tables.from_frame(frame))
    if keys["problem_key"].tolist() != frame["problem_key"].tolist():
        raise SystemExit("the problem keys of the index are not those of this release")
    frame["layer_family"] = keys["layer_family"]
    first = ["problem_key", "layer_family", "split", "network", "layer"]
    table = pa.Table.from_pandas(frame[[*first, *FIELDS]], preserve_index=False)
    types = [pa.string() if name in first or name in TEXTS else pa.int32() for name in table.column_names]
    return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))


def import_operation(folder: Path, operation: str, output: Path) -> str:
    """Write the three tables of one operation; return a line about them."""
    index = json.loads((folder / f"{operation}.index.json").read_text())
    journal = pd.read_csv(folder / f"{operation}.csv.gz", names=JOURNAL)
    labels = [label.partition("@splitk") for label in index["candidates"]]
    names = sorted({name for name, _, _ in labels})
    number = {name: position for position, name in enumerate(names)}
    kernel_of = np.array([number[name] for name, _, _ in labels])
    split_of = np.array([int(split or 1) for _, _, split in labels])
    build = pd.read_csv(folder / f"{operation}.build.csv").set_index("kernel").loc[names]
    told = pd.read_csv(
        folder / f"{operation}.resources.csv",
        names=["kernel", "code", "registers", "local_bytes", "shared_bytes", "blocks"],
    ).set_index("kernel")
    kernels = build.join(told).reset_index()
    table = pa.table(
        {
            "kernel": kernels["kernel"],
            "build_status": kernels["status"],
            **{name: kernels[name] for name in ("registers", "local_bytes", "shared_bytes", "blocks")},
            "object_sha256": kernels["object_sha256"],
        },
        schema=recording.KERNELS,
    )
    write(table, output / operation / "kernels.parquet")
    problems = problem_rows(index["problems"])
    write(problems, output / operation / "problems.parquet")
    pairs = pd.DataFrame(
        {
            "problem": journal["problem"],
            "kernel": kernel_of[journal["candidate"]],
            "split_k": split_of[journal["candidate"]],
            **{name: journal[name] for name in ("status", "samples", "p10_us", "median_us", "p90_us", "cv")},
            "brief": journal["brief"] == 1,
        }
    ).sort_values(["problem", "kernel", "split_k"])
    if pairs.duplicated(["problem", "kernel", "split_k"]).any():
        raise SystemExit(f"{operation}: a pair has two rows")
    write(pa.Table.from_pandas(pairs, recording.PAIRS, preserve_index=False), output / operation / "pairs.parquet")
    baseline = pd.read_csv(
        folder / f"{operation}.cudnn.csv.gz", names=["problem", "samples", "p10_us", "median_us", "p90_us", "error"]
    )
    baseline.insert(0, "problem_key", np.array(index["problems"]["problem_key"])[baseline["problem"]])
    baseline = baseline.drop(columns="problem").sort_values("problem_key")
    write_text(output / operation / "cudnn.csv", baseline.to_csv(index=False))
    counts = pairs["status"].value_counts().to_dict()
    return f"{operation}: {len(kernels)} kernels, {problems.num_rows} problems, {len(pairs)} pairs, {counts}"


def main() -> None:
    """Import every operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, type=Path, help="indexes, journals, build and resource tables")
    parser.add_argument("--about", required=True, type=Path, help="recording.json to keep with them")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()

    about = json.loads(args.about.read_text())
    for operation in about["operations"]:
        print(import_operation(args.folder, operation, args.output))
    write_text(args.output / recording.FILE, json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
