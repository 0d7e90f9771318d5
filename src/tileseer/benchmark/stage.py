"""The benchmark stage: fill the journal of a chunk, measure some pairs again, write the receipt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tileseer.benchmark import adopt, budget, chosen_pairs, journal, receipt, repeats, run
from tileseer.benchmark.session import Session
from tileseer.compile import aliases as alias_table
from tileseer.core import parquet
from tileseer.core.stage_store import Unfinished
from tileseer.devices import registry
from tileseer.devices.trace import traced
from tileseer.families import candidates


def measure(
    session: Session,
    chunk: int,
    support: Path,
    build: Path,
    problems: Path,
    aliases: Path | None,
    chosen: Path | None,
    modules: Sequence[Path],
    shares: int,
    second_journal: Path,
    receipt_path: Path,
) -> str:
    """Measure what is missing of one chunk, with its share of the budget; return what to say of it."""
    settings, locking = session.settings, session.locking
    built = parquet.read(build)
    source = session.source_of([built], list(modules))
    problem_table = parquet.read(problems)
    pairs = parquet.read(support)
    pairs = pairs.filter(alias_table.own(pairs, alias_table.read(aliases)))
    wanted = pairs.filter(chosen_pairs.wanted(pairs, problem_table, chosen_pairs.read(chosen) if chosen else None))

    budget_s = None if settings.budget is None else budget.seconds(settings.budget) / shares
    with (
        registry.claimed(source, locking) as (device, waited),
        journal.Journal(session.journal, locking.timeout_s) as book,
    ):
        start = time.monotonic()
        device = traced(device)
        kernels = candidates.from_build(built)
        direction = session.operation.variant
        batch = run.Batch(session.arch, direction, settings.seed, device, problem_table.to_pandas(), kernels)
        # Read only now: while we waited, another workflow may have measured these very pairs.
        measured, malformed = journal.read(session.journal)
        missing, done = run.missing(batch, wanted, measured), 0
        if missing.num_rows:
            adopted = adopt.from_neighbours(session.journal, missing, batch.measurement_id)
            book.append(adopted)
            missing = run.missing(batch, missing, adopted)
            first_s = None if budget_s is None else budget_s * (1 - repeats.share(device, settings.parameters))
            done = run.measure(batch, *run.rows_of(batch, missing), book, settings.parameters.batch_pairs, first_s)
            measured, malformed = journal.read(session.journal)
        seconds = time.monotonic() - start
    rows = receipt.counted(measured, batch.measurement_id, wanted)
    second = repeats.NOTHING
    if repeats.share(device, settings.parameters):
        begin = time.monotonic()
        second = measure_again(session, source, batch, rows, second_journal, budget_s)
        seconds += time.monotonic() - begin
    made = receipt.Receipt(
        arch=session.arch,
        operation=str(session.operation),
        chunk=chunk,
        device=device.name,
        device_kind=device.kind,
        measurement_id=batch.measurement_id,
        journal=session.journal.as_posix(),
        pairs=rows.num_rows,
        by_status=receipt.status_counts(rows),
        malformed_lines=len(malformed),
        rows_sha256=receipt.digest(rows),
        skipped=wanted.num_rows - rows.num_rows,
        again=second.num_rows,
        again_sha256=receipt.digest(second) if second.num_rows else "",
        differences=repeats.differences(rows, second, settings.parameters, settings.seed),
    )
    made.write(receipt_path)
    told = (
        f"{made.arch} {made.operation} chunk {chunk}: {done:,} pairs measured ({device.kind}), "
        f"{wanted.num_rows - missing.num_rows:,} kept, {missing.num_rows - done:,} beyond the budget, "
        f"{rows.num_rows - made.by_status.get('ok', 0):,} failed, {second.num_rows:,} times measured again, "
        f"{len(malformed):,} malformed lines, {seconds:.1f} s, {waited:.1f} s waited for the lock"
    )
    # The next run measures what a budget left out, and once more where the device was in trouble that may pass.
    return Unfinished(told) if made.skipped or set(made.by_status) & set(receipt.PASSING) else told


def measure_again(
    session: Session,
    source: registry.Source,
    first: run.Batch,
    rows: pa.Table,
    path: Path,
    budget_s: float | None,
) -> pa.Table:
    """Measure some of the measured ``rows`` once more in a session of its own; return what counts of the journal."""
    settings, own = session.settings, replace(source, details=path.with_suffix(".details.jsonl"))

    def counted() -> pa.Table:
        return repeats.counted(journal.read(path)[0], first.measurement_id, rows) if path.exists() else repeats.NOTHING

    if not repeats.plan(rows, counted(), settings.parameters, settings.seed).num_rows:
        return counted()
    with (
        registry.claimed(own, session.locking) as (device, _),
        journal.Journal(path, session.locking.timeout_s) as book,
    ):
        device = traced(device)
        batch = replace(first, device=device)
        # Once more, now that no other workflow measures them.
        todo = repeats.plan(rows, counted(), settings.parameters, settings.seed)
        rest_s = None if budget_s is None else budget_s * repeats.share(device, settings.parameters)
        run.measure(batch, *run.positions(batch, todo), book, settings.parameters.batch_pairs, rest_s, in_order=True)
    return counted()
