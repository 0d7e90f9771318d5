"""The benchmark stage: fill the journal of a chunk, repeat some measurements, write the receipt."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tileseer.benchmark import budget, chosen_pairs, journal, receipt, repeats, run
from tileseer.benchmark.run import Session
from tileseer.compile import aliases as alias_table
from tileseer.compile.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.core.stage_store import Unfinished
from tileseer.devices import registry
from tileseer.families import candidates
from tileseer.problems import problem_table
from tileseer.support import support_table


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
    memory_mib: int,
) -> str:
    """Measure the missing pairs of one chunk, with its share of the budget; the message about it.

    The memory does not grow with the journal. Where some pairs are repeated, it grows with the chunk's pairs.
    """
    settings, locking, parameters = session.settings, session.locking, session.settings.parameters
    built, pairs = parquet.read(build, BUILD), parquet.read(support, support_table.SCHEMA)
    entries = parquet.read(problems, problem_table.SCHEMA)
    pairs = pairs.filter(alias_table.own(pairs, alias_table.read(aliases)))
    wanted = pairs.filter(chosen_pairs.wanted(pairs, entries, chosen_pairs.read(chosen) if chosen else None))
    source = session.source_of([built], list(modules))
    budget_s = None if settings.budget is None else budget.seconds(settings.budget) / shares
    with (
        registry.claimed(source, locking) as (device, waited),
        journal.Journal(session.journal, locking.timeout_s) as book,
    ):
        begin = time.monotonic()
        direction, kernels = session.operation.variant, candidates.from_build(built)
        batch = run.Batch(session.arch, direction, settings.seed, device, entries.to_pandas(), kernels)
        share = repeats.share(device, parameters)
        first_s = None if budget_s is None else budget_s * (1 - share)
        found = run.fill(batch, wanted, session.journal, book, memory_mib, parameters.batch_pairs, first_s)
        seconds = time.monotonic() - begin
    account, first = receipt.Account(), repeats.NOTHING.select(receipt.COUNTED)
    for pairs_of_part, measured in run.parts(batch, wanted, session.journal, memory_mib):
        rows = receipt.counted(measured, pairs_of_part)
        account.add(rows)
        first = pa.concat_tables([first, rows]) if share else first
    second = repeats.NOTHING
    if share:
        begin = time.monotonic()
        rest_s = None if budget_s is None else budget_s * share
        second = repeat(session, source, batch, first, second_journal, rest_s)
        seconds += time.monotonic() - begin
    made = receipt.Receipt(
        **batch.by._asdict(),
        operation=str(session.operation),
        chunk=chunk,
        journal=session.journal.as_posix(),
        **account.fields(),
        malformed_lines=found.malformed,
        skipped=wanted.num_rows - account.pairs,
        again=second.num_rows,
        again_sha256=receipt.digest(second) if second.num_rows else "",
        differences=repeats.differences(first, second, parameters, settings.seed),
    )
    made.write(receipt_path)
    told = (
        f"{found.done:,} pairs measured ({device.kind}), "
        f"{wanted.num_rows - found.done - found.left:,} kept, {found.left:,} beyond the budget, "
        f"{made.pairs - made.by_status.get('ok', 0):,} failed, {made.repeats:,} times measured again, "
        f"{found.malformed:,} malformed lines, {seconds:.1f} s, {waited:.1f} s waited for the lock"
    )
    # The next run measures what a budget left out, and once more where the device was throttled or contended.
    return Unfinished(told) if made.skipped or set(made.by_status) & set(receipt.PASSING) else told


def repeat(
    session: Session,
    source: registry.Source,
    first: run.Batch,
    rows: pa.Table,
    path: Path,
    budget_s: float | None,
) -> pa.Table:
    """Repeat some measurements of ``rows`` in a session of its own; the rows of the journal ``path`` that count."""
    settings, locking, parameters = session.settings, session.locking, session.settings.parameters

    def counted() -> pa.Table:
        return repeats.counted(journal.read(path)[0], first.by, rows) if path.exists() else repeats.NOTHING

    if not repeats.plan(rows, counted(), parameters, settings.seed).num_rows:
        return counted()
    own = replace(source, details=path.with_suffix(".details.jsonl"))
    with registry.claimed(own, locking) as (device, _), journal.Journal(path, locking.timeout_s) as book:
        batch = replace(first, device=device)
        # Once more, now that no other workflow measures them.
        todo = repeats.plan(rows, counted(), parameters, settings.seed)
        order = run.positions(batch.problems, batch.candidates, todo)
        run.measure(batch, *order, book, parameters.batch_pairs, budget_s, in_order=True)
    return counted()
