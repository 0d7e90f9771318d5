#!/usr/bin/env python3
"""Add what more.sh measured to a recording, as training problems: below the rows that are there, which stay the same.

A problem counts if every pair that it has was measured, by the support tables of ``--offered`` or, without them, by the
receipts of all chunks.
"""

import argparse
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from record import KEY, QUANTILES, attempts, kernel_rows, write

from tileseer.core.journal_files import journals_in
from tileseer.measure import receipt
from tileseer.measure.journal import read_journal
from tileseer.problems import layers, problem_sets
from tileseer.problems.operation import Operation
from tileseer.problems.problem import problem_frame


def drawn_problems(tables: list[Path], operation: Operation) -> pd.DataFrame:
    """Problems of the tables of more_problems.py for one operation, in the form of a recording."""
    entries = {}
    for path in tables:
        for entry in problem_sets.problems_of_layers(layers.read_layers(path), operation, (2, 3)):
            entries.setdefault(entry.problem.key, entry.problem)
    return problem_frame(list(entries.values())).assign(split="train", network="design", layer="")


def measured_pairs(results: Path, arch: str, operation: str) -> pd.DataFrame:
    """One row a pair of the journals, with what the details log says of the attempt that counts."""
    folder = results / f"journals/{arch}/{operation}"
    rows = pd.concat([read_journal(path)[0].to_pandas() for path in journals_in(folder)])
    passing = rows["status"].astype(str).isin(receipt.PASSING)
    rows = pd.concat([rows[~passing], rows[passing]]).drop_duplicates(KEY)[[*KEY, "kernel_id", "status", "latency_ms"]]
    told = pd.concat([pd.DataFrame(attempts(log)) for log in sorted(folder.glob("*.details.jsonl"))])
    for name in KEY:
        rows[name], told[name] = rows[name].astype(object), told[name].astype(object)
    rows["order"] = range(len(rows))
    pairs = rows.merge(told, on=KEY, how="left")
    # The attempt whose time the journal has; of a pair that failed, the last one.
    pairs["apart"] = (pairs["median_us"] / 1000 - pairs["latency_ms"]).abs().div(pairs["latency_ms"]).fillna(0)
    pairs = pairs.sort_values(["order", "apart"], kind="stable").drop_duplicates("order")
    ok = pairs["status"].astype(str) == "ok"
    if (pairs["apart"][ok] > 1e-4).any():
        raise SystemExit(f"{operation}: times of the journal are not those of the details log")
    return pairs


def add(
    recording: Path, results: Path, arch: str, operation: str, tables: list[Path], offered: list[Path], gpu: int
) -> str:
    """Write the three tables of one operation with the new rows; return a line about them."""
    own = recording / operation
    old = {name: pq.read_table(own / f"{name}.parquet") for name in ("kernels", "problems", "pairs")}
    problems = drawn_problems(tables, Operation.parse(operation))
    pairs = measured_pairs(results, arch, operation)
    pairs = pairs[pairs["problem_key"].isin(problems["problem_key"])]
    if offered:
        plans = pd.concat(
            [
                pq.read_table(path).to_pandas()
                for root in offered
                for path in root.glob(f"support/{arch}/{operation}/*.parquet")
            ]
        )[["kernel_id", "problem_key", "rank"]].astype({"kernel_id": object, "problem_key": object})
        plans = plans.drop_duplicates(["kernel_id", "problem_key"])
        pairs = pairs.astype({"kernel_id": object}).merge(plans, on=["kernel_id", "problem_key"])
        wanted = plans.groupby("problem_key").size()
        wanted = pairs["problem_key"].map(wanted)
    else:
        wanted = pairs.groupby("problem_key")["kernel"].transform("size")
    bad = pairs["status"].astype(str).isin(receipt.PASSING)
    whole = (
        pairs.assign(bad=bad, wanted=wanted)
        .groupby("problem_key")
        .agg(n=("kernel", "size"), wanted=("wanted", "first"), bad=("bad", "any"))
    )
    whole = set(whole.index[(whole["n"] == whole["wanted"]) & ~whole["bad"]])
    pairs = pairs[pairs["problem_key"].isin(whole)]
    problems = problems[problems["problem_key"].isin(whole)]

    known = old["kernels"]["kernel"].to_pylist()
    fresh = sorted(set(pairs["kernel"]) - set(known))
    note = ""
    if "object_sha256" in old["kernels"].column_names:
        built = kernel_rows(results / f"build/{arch}/{operation}").to_pandas().set_index("kernel")
        had = old["kernels"].to_pandas().set_index("kernel")
        both = had.index.intersection(built.index)
        same = (had.loc[both, "object_sha256"] == built.loc[both, "object_sha256"]).sum()
        resources = (
            (
                had.loc[both, ["registers", "shared_bytes", "blocks"]]
                == built.loc[both, ["registers", "shared_bytes", "blocks"]]
            )
            .all(axis=1)
            .sum()
        )
        note = f", {same} of {len(both)} kernels with the same code, {resources} with the same resources"
        if fresh:
            raise SystemExit(f"{operation}: kernels that the recording lacks: {fresh}")
    kernels = pa.concat_tables(
        [old["kernels"], pa.table({"kernel": fresh, "build_status": ["ok"] * len(fresh)}, old["kernels"].schema)]
        if fresh
        else [old["kernels"]]
    )
    more = problems[old["problems"].column_names]
    table = pa.concat_tables(
        [old["problems"], pa.Table.from_pandas(more, old["problems"].schema, preserve_index=False)]
    )
    numbers = {name: {text: i for i, text in enumerate(part[column].to_pylist())} for name, part, column in
               (("kernel", kernels, "kernel"), ("problem", table, "problem_key"))}  # fmt: skip
    pairs["problem"], pairs["kernel"] = (
        pairs["problem_key"].map(numbers["problem"]),
        pairs["kernel"].map(numbers["kernel"]),
    )
    pairs["gpu"] = gpu
    pairs["samples"] = pairs["samples"].fillna(0)
    pairs["brief"] = pairs["brief"].fillna(False).astype(bool)
    pairs["status"] = pairs["status"].astype(str)
    pairs.loc[pairs["status"] != "ok", QUANTILES] = float("nan")
    if "turns" in old["pairs"].column_names:
        pairs = pairs.assign(turns=0, short_us=pairs["median_us"])
    pairs = pairs.sort_values(["problem", "kernel", "split_k"])
    schema = old["pairs"].schema.remove_metadata()
    text = pa.schema([field.with_type(pa.string()) if field.name == "status" else field for field in schema])
    rows = pa.Table.from_pandas(pairs[schema.names], text, preserve_index=False)
    joined = pa.concat_tables([old["pairs"].replace_schema_metadata(None).cast(text), rows]).cast(schema)
    for name, part in (("kernels", kernels), ("problems", table), ("pairs", joined)):
        write(part, own / f"{name}.parquet")
    counts = pairs["status"].value_counts().to_dict()
    return f"{operation}: {len(problems)} problems, {len(pairs)} pairs, {counts}, {len(fresh)} new kernels{note}"


def main() -> None:
    """Add the rows of every operation that was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--problems", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--offered", type=Path, nargs="*", default=[], help="results folders with the support tables of all parts"
    )
    parser.add_argument("--gpu", type=int, required=True, help="number of the board")
    args = parser.parse_args()
    for folder in sorted((args.results / "journals" / args.arch).iterdir()):
        print(
            add(args.recording, args.results, args.arch, folder.name, args.problems, args.offered, args.gpu), flush=True
        )


if __name__ == "__main__":
    main()
