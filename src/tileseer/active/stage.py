"""The active stage: choose in rounds of measuring and learning which training pairs are worth measuring."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.active import active_tables, choice
from tileseer.benchmark import journal, run
from tileseer.benchmark.session import Session
from tileseer.compile import aliases as alias_table
from tileseer.core import parquet
from tileseer.devices import registry
from tileseer.families import candidates


def choose(
    session: Session,
    support: Sequence[Path],
    build: Sequence[Path],
    problems: Path,
    aliases: Path | None,
    modules: Sequence[Path],
    chosen: Path,
) -> str:
    """Write the chosen pairs; what is measured goes to the session's journal, from where the chunks take it over."""
    settings, locking = session.settings, session.locking
    tables = [parquet.read(path) for path in build]
    source = session.source_of(tables, list(modules))
    entries = parquet.read(problems).to_pandas()
    # How kernels were dealt to chunks must not matter.
    built = pd.concat([candidates.from_build(table) for table in tables]).sort_values("candidate", ignore_index=True)
    known = alias_table.read(aliases)
    supports = [parquet.read(path) for path in support]
    pool, pairs = active_tables.pool(entries, built, [part.filter(alias_table.own(part, known)) for part in supports])

    with registry.claimed(source, locking) as (device, _), journal.Journal(session.journal, locking.timeout_s) as book:
        batch = run.Batch(session.arch, session.operation.variant, settings.seed, device, entries, built)
        measured_now = 0

        def measure(rows: np.ndarray) -> np.ndarray:
            nonlocal measured_now
            filled = run.fill(batch, pairs.take(rows), session.journal, book, settings.parameters.batch_pairs)
            measured_now += filled.done
            return np.asarray(filled.rows["tflops"].to_numpy())

        rounds = choice.choose(pool, source.hardware, choice.Plan(settings.training_share, seed=settings.seed), measure)
    table = active_tables.table(rounds, pairs)
    parquet.write(table, chosen)
    return (
        f"{session.arch} {session.operation}: {measured_now:,} pairs measured ({device.kind}), {table.num_rows:,} "
        f"chosen of {pairs.num_rows:,} training pairs ({100 * table.num_rows / pairs.num_rows:.1f} %) in "
        f"{len(rounds)} rounds"
    )
