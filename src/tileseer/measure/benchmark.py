"""The benchmark stage: fill the journal of a chunk, repeat some measurements, write the receipt."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tileseer.build import aliases
from tileseer.build.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.libraries import candidates
from tileseer.measure import receipt, repeats, support_table
from tileseer.measure.batch import Batch, fill_journal, measure_pairs, positions_of
from tileseer.measure.device import list_failures
from tileseer.measure.journal import Journal, read_journal
from tileseer.measure.session import Session
from tileseer.problems import problem_table


@dataclass(frozen=True)
class ChunkTables:
    """The files that say what is to be measured of one chunk."""

    support: Path
    build: Path
    problems: Path
    aliases: Path | None
    """Without it, every kernel is measured itself."""
    module: Path | None
    """Library with the kernels, for a real GPU."""


def measure_chunk(
    session: Session, chunk: int, tables: ChunkTables, shares: int, second_journal: Path
) -> tuple[receipt.Receipt, str]:
    """Measure the missing pairs of one chunk, with its share of the budget; its receipt, and the message about it."""
    settings, parameters = session.settings, session.settings.parameters
    built = parquet.read_table(tables.build, BUILD)
    entries = parquet.read_table(tables.problems, problem_table.SCHEMA)
    pairs = parquet.read_table(tables.support, support_table.SCHEMA, bounded=False)
    pairs = pairs.filter(aliases.measured_mask(pairs, aliases.read_aliases(tables.aliases)))
    pairs = pairs.filter(support_table.supported(pairs))
    session = session.with_kernels(built, tables.module)
    budget_s = settings.budget_s and settings.budget_s / shares
    assert session.journal is not None
    with session.hold_device() as (device, waited), Journal(session.journal, session.lock_timeout_s) as journal:
        begin = time.monotonic()
        batch = Batch(session, device, entries.to_pandas(), candidates.from_build(built))
        share = repeats.repeat_share(device, parameters)
        done = fill_journal(batch, pairs, journal, budget_s and budget_s * (1 - share))
        journal.compress()
        seconds = time.monotonic() - begin
    rows, malformed = read_journal(session.journal, batch.by, receipt.COUNTED_COLUMNS)
    rows = receipt.counted(rows, pairs)
    second = repeats.NOTHING
    if share:
        begin = time.monotonic()
        second = measure_repeats(batch, rows, second_journal, budget_s and budget_s * share)
        seconds += time.monotonic() - begin
    made = receipt.Receipt(
        **batch.by._asdict(),
        operation=session.operation,
        chunk=chunk,
        journal=session.journal.as_posix(),
        **receipt.summarize_rows(rows),
        malformed_lines=malformed.num_rows,
        skipped=pairs.num_rows - rows.num_rows,
        again=second.num_rows,
        again_sha256=receipt.digest_rows(second) if second.num_rows else "",
        differences=repeats.differences(rows, second, parameters, settings.seed),
    )
    failed, kept = list_failures(made.by_status), made.pairs - done
    parts = [
        done and f"{done:,} pairs measured in {seconds:.0f} s ({device.kind} times)",
        kept and f"{kept:,} pairs were measured before",
        made.skipped and f"{made.skipped:,} pairs are not measured, as the time of benchmark.budget is over",
        failed and f"failed: {failed}",
        made.repeats and f"{made.repeats:,} pairs measured twice, to see how far times differ",
        made.malformed_lines and f"{made.malformed_lines:,} damaged lines of the journal left out",
        waited >= 1 and f"waited {waited:.0f} s for another run on this GPU",
    ]
    return made, "; ".join(part for part in parts if part) or "no pair can run"


def measure_repeats(first: Batch, rows: pa.Table, path: Path, budget_s: float | None) -> pa.Table:
    """Repeat some measurements of ``rows`` in a session of its own; the rows of the journal ``path`` that count."""
    session = replace(first.session, journal=path)
    settings = session.settings

    def counted() -> pa.Table:
        return repeats.counted(read_journal(path, first.by)[0], rows)

    if not repeats.plan_repeats(rows, counted(), settings.parameters, settings.seed).num_rows:
        return counted()
    with session.hold_device() as (device, _), Journal(path, session.lock_timeout_s) as journal:
        batch = replace(first, session=session, device=device)
        # Once more, now that no other workflow measures them.
        pending = repeats.plan_repeats(rows, counted(), settings.parameters, settings.seed)
        order = positions_of(batch.problems, batch.candidates, pending)
        measure_pairs(batch, *order, journal, budget_s)
        journal.compress()
    return counted()
