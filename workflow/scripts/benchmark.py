#!/usr/bin/env python3
"""Measure the pairs of one chunk on the device, holding its lock; measured pairs are kept and not repeated."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tileseer.benchmark import adopt, budget, chosen_pairs, journal, receipt, repeats, run
from tileseer.compile import aliases
from tileseer.conv.operation import Operation
from tileseer.core import parquet
from tileseer.core.errors import reports_user_errors
from tileseer.devices import registry
from tileseer.devices.trace import traced
from tileseer.families import candidates
from tileseer.gpu import hardware
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the supported pairs of a chunk, fill the journal, write the receipt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--chunk", required=True, type=int)
    parser.add_argument("--support", required=True, type=Path)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--problems", required=True, type=Path)
    parser.add_argument("--hardware", required=True, type=Path)
    parser.add_argument("--product", required=True, help="GPU product in the hardware table")
    parser.add_argument("--coefficients", required=True, type=Path)
    parser.add_argument("--shares", type=int, default=1, help="jobs that share the budget (default: 1)")
    parser.add_argument("--settings", default="{}", help="section benchmark of config.yaml as JSON")
    parser.add_argument("--lock", default="{}", help="section lock of config.yaml as JSON")
    parser.add_argument("--driver", type=Path, help="measuring driver, for a real GPU")
    parser.add_argument("--modules", type=Path, nargs="*", default=[], help="kernel libraries, one a build table")
    parser.add_argument("--aliases", type=Path, help="kernels that are not measured, because another is for them")
    parser.add_argument("--chosen", type=Path, help="pairs of training problems to measure; without it, all")
    parser.add_argument("--journal", required=True, type=Path, help="CSV that measurements are appended to")
    parser.add_argument("--receipt", required=True, type=Path, help="JSON to write")
    args = parser.parse_args(argv)

    settings = BenchmarkSettings.from_json(args.settings)
    locking = LockSettings.from_json(args.lock)
    built = parquet.read(args.build)
    source = registry.Source(
        settings=settings,
        hardware=hardware.get(args.hardware, args.product),
        coefficients=args.coefficients,
        driver=args.driver,
        modules=registry.modules_of([built], args.modules),
        operation=str(args.operation),
        details=args.journal.with_suffix(".details.jsonl"),
    )
    problem_table = parquet.read(args.problems)
    problems = problem_table.to_pandas()
    kernels = candidates.from_build(built)
    pairs = parquet.read(args.support)
    pairs = pairs.filter(aliases.own(pairs, aliases.read(args.aliases)))
    chosen = chosen_pairs.read(args.chosen) if args.chosen else None
    wanted = pairs.filter(chosen_pairs.wanted(pairs, problem_table, chosen))

    budget_s = None if settings.budget is None else budget.seconds(settings.budget) / args.shares
    with (
        registry.claimed(source, locking) as (device, waited),
        journal.Journal(args.journal, locking.timeout_s) as book,
    ):
        start = time.monotonic()
        device = traced(device)
        batch = run.Batch(args.arch, args.operation.variant, settings.seed, device, problems, kernels)
        # Read only now: while we waited, another workflow may have measured these very pairs.
        measured, malformed = journal.read(args.journal)
        missing, done = run.missing(batch, wanted, measured), 0
        if missing.num_rows:
            adopted = adopt.from_neighbours(args.journal, missing, batch.measurement_id)
            book.append(adopted)
            missing = run.missing(batch, missing, adopted)
            first_s = None if budget_s is None else budget_s * (1 - repeats.share(device, settings.parameters))
            done = run.measure(batch, *run.rows_of(batch, missing), book, settings.parameters.batch_pairs, first_s)
            measured, malformed = journal.read(args.journal)
        seconds = time.monotonic() - start
    skipped = missing.num_rows - done
    rows = receipt.counted(measured, batch.measurement_id, wanted)
    second = repeats.NOTHING
    if repeats.share(device, settings.parameters):
        begin = time.monotonic()
        second = measure_again(source, locking, batch, rows, repeats.journal_of(args.journal), budget_s)
        seconds += time.monotonic() - begin
    counts = receipt.status_counts(rows)
    receipt.Receipt(
        arch=args.arch,
        operation=str(args.operation),
        chunk=args.chunk,
        device=device.name,
        device_kind=device.kind,
        measurement_id=batch.measurement_id,
        journal=args.journal.as_posix(),
        pairs=rows.num_rows,
        by_status=counts,
        malformed_lines=len(malformed),
        rows_sha256=receipt.digest(rows),
        skipped=wanted.num_rows - rows.num_rows,
        again=second.num_rows,
        again_sha256=receipt.digest(second) if second.num_rows else "",
        differences=repeats.differences(rows, second, settings.parameters, settings.seed),
    ).write(args.receipt)
    failed = rows.num_rows - counts.get("ok", 0)
    print(
        f"{args.arch} {args.operation} chunk {args.chunk}: {done:,} pairs measured ({device.kind}), "
        f"{wanted.num_rows - missing.num_rows:,} kept, {skipped:,} beyond the budget, {failed:,} failed, "
        f"{second.num_rows:,} times measured again, "
        f"{len(malformed):,} malformed lines, "
        f"{seconds:.1f} s, {waited:.1f} s waited for the lock"
    )


def measure_again(
    source: registry.Source,
    locking: LockSettings,
    first: run.Batch,
    rows: pa.Table,
    path: Path,
    budget_s: float | None,
) -> pa.Table:
    """Measure some of the measured ``rows`` once more in a session of its own; return what counts of the journal."""
    settings, own = source.settings, replace(source, details=path.with_suffix(".details.jsonl"))

    def counted() -> pa.Table:
        return repeats.counted(journal.read(path)[0], first.measurement_id, rows) if path.exists() else repeats.NOTHING

    if not repeats.plan(rows, counted(), settings.parameters, settings.seed).num_rows:
        return counted()
    with registry.claimed(own, locking) as (device, _), journal.Journal(path, locking.timeout_s) as book:
        device = traced(device)
        batch = replace(first, device=device)
        # Once more, now that no other workflow measures them.
        todo = repeats.plan(rows, counted(), settings.parameters, settings.seed)
        rest_s = None if budget_s is None else budget_s * repeats.share(device, settings.parameters)
        run.measure(batch, *run.positions(batch, todo), book, settings.parameters.batch_pairs, rest_s, in_order=True)
    return counted()


if __name__ == "__main__":
    raise SystemExit(main())
