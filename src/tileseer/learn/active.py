"""The active stage: choose in rounds of measuring and learning which training pairs are worth measuring."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.compile import aliases as alias_table
from tileseer.compile.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.costmodel.coefficients import Coefficients, load_coefficients
from tileseer.costmodel.cost_models import COST_MODELS
from tileseer.dataset.dataset import SKIPPED, Dataset
from tileseer.kernels import candidates
from tileseer.kernels.registry import family_of_arch
from tileseer.learn import active_choice as choice
from tileseer.learn.active_choice import Round
from tileseer.measure import batch as run
from tileseer.measure import chosen_pairs, journal, receipt, support_table
from tileseer.measure.device import DeviceKind
from tileseer.measure.pairs import IDENTITY
from tileseer.measure.session import Session
from tileseer.problems import problem_table


def choose_pairs(
    session: Session,
    support: Sequence[Path],
    build: Sequence[Path],
    problems: Path,
    aliases: Path | None,
    modules: Sequence[Path],
    chosen: Path,
) -> str:
    """Write the chosen pairs; what is measured goes to the session's journal, from where the chunks take it over."""
    settings = session.settings
    tables = [parquet.read_table(path, BUILD) for path in build]
    session = session.with_kernels(tables, modules)
    entries = parquet.read_table(problems, problem_table.SCHEMA).to_pandas()
    # How kernels were dealt to chunks must not matter.
    built = pd.concat([candidates.from_build(table) for table in tables]).sort_values("candidate", ignore_index=True)
    stand_ins = alias_table.read_aliases(aliases)
    supports = [parquet.read_table(path, support_table.SCHEMA) for path in support]
    supports = [part.filter(alias_table.measured_mask(part, stand_ins)) for part in supports]

    assert session.journal is not None
    with session.claim_device() as (device, lock, _), journal.Journal(session.journal, session.lock_timeout_s) as book:
        batch = run.Batch(session, device, lock, entries, built)
        pool, pairs = pool_of(batch, supports)
        measured_now = 0

        def measure(rows: np.ndarray) -> np.ndarray:
            nonlocal measured_now
            requested = pairs.take(rows)
            measured_now += run.fill_journal(batch, requested, book)
            measured, _ = journal.read_journal(book.path, batch.by, receipt.COUNTED)
            return np.asarray(receipt.counted(measured, requested)["tflops"].to_numpy())

        plan = choice.ActivePlan(settings.training_share, seed=settings.seed)
        rounds = choice.choose_rounds(pool, session.hardware, plan, measure, _formula(session))
        book.compress()
    table = chosen_table(rounds, pairs)
    parquet.write_table(table, chosen)
    return (
        f"{measured_now:,} pairs measured ({device.kind}), {table.num_rows:,} "
        f"chosen of {pairs.num_rows:,} training pairs ({100 * table.num_rows / pairs.num_rows:.1f} %) in "
        f"{len(rounds)} rounds"
    )


def _formula(session: Session) -> Coefficients | None:
    """The coefficients of the formula that leads; None where there is none, or where it would make the times."""
    family = family_of_arch(session.hardware.arch)
    if session.settings.device == "simulated" or family.name not in COST_MODELS:
        return None
    return load_coefficients(session.coefficients)


def pool_of(batch: run.Batch, pairs: Sequence[pa.Table]) -> tuple[Dataset, pa.Table]:
    """The supported pairs of training problems, without a time, and the same as rows of ``IDENTITY``.

    ``pairs`` are the support tables of all chunks. The order is by problem and then by candidate of the two tables.
    """
    identity = pa.schema([chosen_pairs.SCHEMA.field(name) for name in IDENTITY])
    supported = pa.concat_tables(
        table.filter(support_table.supported(table)).select(IDENTITY).cast(identity) for table in pairs
    )
    problem, candidate = run.positions_of(batch.problems, batch.candidates, supported)
    rows = np.flatnonzero((batch.problems["split"] == "train").to_numpy()[problem])
    rows = rows[np.lexsort((candidate[rows], problem[rows]))]
    unknown = np.full(len(rows), np.nan)
    pool = Dataset(
        arch=batch.session.arch,
        operation=batch.session.operation,
        device=batch.device.name,
        device_kind=cast(DeviceKind, batch.device.kind),
        problems=batch.problems,
        candidates=batch.candidates,
        problem=problem[rows],
        candidate=candidate[rows],
        status=np.full(len(rows), SKIPPED, np.uint8),
        latency_ms=unknown,
        tflops=unknown,
        relative_error=unknown,
        sentinel=unknown,
        rank=unknown,
    )
    return pool, supported.take(pa.array(rows))


def chosen_table(rounds: Sequence[Round], pairs: pa.Table) -> pa.Table:
    """The chosen pairs with what each round saw in the metadata; ``pairs`` are those of the pool."""
    chosen = np.concatenate([one.pairs for one in rounds])
    number = np.repeat(np.arange(len(rounds)), [len(one.pairs) for one in rounds])
    table = pairs.take(pa.array(chosen)).append_column("round", pa.array(number, pa.int32()))
    record = {
        "supported_training_pairs": pairs.num_rows,
        "rounds": [{"pairs": len(one.pairs), "picks_changed": one.picks_changed} for one in rounds],
    }
    return table.cast(chosen_pairs.SCHEMA).replace_schema_metadata({"tileseer": json.dumps(record, sort_keys=True)})
