"""The benchmark stage: fill the journal of a chunk, repeat some measurements, write the receipt."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tileseer.compile import aliases
from tileseer.compile.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.core.stage_store import Unfinished
from tileseer.kernels import candidates
from tileseer.measure import chosen_pairs, devices, receipt, repeats, support_table
from tileseer.measure.journal import Journal, read_journal
from tileseer.measure.session import Batch, Session, fill_journal, measure_pairs, positions_of
from tileseer.problems import problem_table


@dataclass(frozen=True)
class ChunkTables:
    """The files that say what is to be measured of one chunk."""

    support: Path
    build: Path
    problems: Path
    aliases: Path | None
    """Without it, every kernel is measured itself."""
    chosen: Path | None
    """Pairs that active measuring chose; without it, all."""
    modules: Sequence[Path]
    """Libraries with the kernels, for a real GPU."""


def measure_chunk(
    session: Session, chunk: int, tables: ChunkTables, shares: int, second_journal: Path
) -> tuple[receipt.Receipt, str]:
    """Measure the missing pairs of one chunk, with its share of the budget; its receipt, and the message about it."""
    settings, locking, parameters = session.settings, session.locking, session.settings.parameters
    built = parquet.read_table(tables.build, BUILD)
    entries = parquet.read_table(tables.problems, problem_table.SCHEMA)
    pairs = parquet.read_table(tables.support, support_table.SCHEMA)
    pairs = pairs.filter(aliases.own(pairs, aliases.read_aliases(tables.aliases)))
    chosen = chosen_pairs.read_chosen_pairs(tables.chosen) if tables.chosen else None
    pairs = pairs.filter(chosen_pairs.pairs_to_measure(pairs, entries, chosen))
    source = session.source_of([built], list(tables.modules))
    budget_s = None if settings.budget_s is None else settings.budget_s / shares
    with (
        devices.claimed(source, locking) as (device, waited),
        Journal(session.journal, locking.timeout_s) as journal,
    ):
        begin = time.monotonic()
        kernels = candidates.from_build(built)
        batch = Batch(session.arch, session.operation.variant, settings.seed, device, entries.to_pandas(), kernels)
        share = repeats.share(device, parameters)
        first_s = None if budget_s is None else budget_s * (1 - share)
        filled = fill_journal(batch, pairs, session.journal, journal, parameters.batch_pairs, first_s)
        seconds = time.monotonic() - begin
    rows = receipt.counted(read_journal(session.journal, batch.by, receipt.COUNTED)[0], pairs)
    second = repeats.NOTHING
    if share:
        begin = time.monotonic()
        rest_s = None if budget_s is None else budget_s * share
        second = measure_repeats(session, source, batch, rows, second_journal, rest_s)
        seconds += time.monotonic() - begin
    made = receipt.Receipt(
        **batch.by._asdict(),
        operation=str(session.operation),
        chunk=chunk,
        journal=session.journal.as_posix(),
        **receipt.summarize_rows(rows),
        malformed_lines=filled.malformed,
        skipped=pairs.num_rows - rows.num_rows,
        again=second.num_rows,
        again_sha256=receipt.digest_rows(second) if second.num_rows else "",
        differences=repeats.differences(rows, second, parameters, settings.seed),
    )
    message = (
        f"{filled.done:,} pairs measured ({device.kind}), "
        f"{pairs.num_rows - filled.done - filled.left:,} kept, {filled.left:,} beyond the budget, "
        f"{made.pairs - made.by_status.get('ok', 0):,} failed, {made.repeats:,} times measured again, "
        f"{filled.malformed:,} malformed lines, {seconds:.1f} s, {waited:.1f} s waited for the lock"
    )
    # The next run measures what a budget left out, and once more where the device was throttled or contended.
    is_unfinished = made.skipped or set(made.by_status) & set(receipt.PASSING)
    return made, Unfinished(message) if is_unfinished else message


def measure_repeats(
    session: Session, source: devices.DeviceSource, first: Batch, rows: pa.Table, path: Path, budget_s: float | None
) -> pa.Table:
    """Repeat some measurements of ``rows`` in a session of its own; the rows of the journal ``path`` that count."""
    settings, locking, parameters = session.settings, session.locking, session.settings.parameters

    def counted() -> pa.Table:
        return repeats.counted(read_journal(path, first.by)[0], rows) if path.exists() else repeats.NOTHING

    if not repeats.plan(rows, counted(), parameters, settings.seed).num_rows:
        return counted()
    own = replace(source, details=path.with_suffix(".details.jsonl"))
    with devices.claimed(own, locking) as (device, _), Journal(path, locking.timeout_s) as journal:
        batch = replace(first, device=device)
        # Once more, now that no other workflow measures them.
        pending = repeats.plan(rows, counted(), parameters, settings.seed)
        order = positions_of(batch.problems, batch.candidates, pending)
        measure_pairs(batch, *order, journal, parameters.batch_pairs, budget_s)
    return counted()
