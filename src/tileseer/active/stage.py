"""The active stage: choose in rounds of measuring and learning which training pairs are worth measuring."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.active import choice
from tileseer.active.choice import Pool, Round
from tileseer.benchmark import chosen_pairs, journal, receipt, run
from tileseer.benchmark.pairs import IDENTITY
from tileseer.benchmark.run import Session
from tileseer.compile import aliases as alias_table
from tileseer.compile.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.devices import registry
from tileseer.families import candidates
from tileseer.families.coefficients import Coefficients, load_coefficients
from tileseer.families.registry import of_arch
from tileseer.problems import problem_table
from tileseer.support import support_table


def choose(
    session: Session,
    support: Sequence[Path],
    build: Sequence[Path],
    problems: Path,
    aliases: Path | None,
    modules: Sequence[Path],
    chosen: Path,
    memory_mib: int,
) -> str:
    """Write the chosen pairs; what is measured goes to the session's journal, from where the chunks take it over."""
    settings, locking = session.settings, session.locking
    tables = [parquet.read(path, BUILD) for path in build]
    source = session.source_of(tables, list(modules))
    entries = parquet.read(problems, problem_table.SCHEMA).to_pandas()
    # How kernels were dealt to chunks must not matter.
    built = pd.concat([candidates.from_build(table) for table in tables]).sort_values("candidate", ignore_index=True)
    known = alias_table.read(aliases)
    supports = [parquet.read(path, support_table.SCHEMA) for path in support]
    pool, pairs = pool_of(entries, built, [part.filter(alias_table.own(part, known)) for part in supports])

    with registry.claimed(source, locking) as (device, _), journal.Journal(session.journal, locking.timeout_s) as book:
        batch = run.Batch(session.arch, session.operation.variant, settings.seed, device, entries, built)
        measured_now = 0

        def measure(rows: np.ndarray) -> np.ndarray:
            nonlocal measured_now
            asked = pairs.take(rows)
            filled = run.fill(batch, asked, session.journal, book, memory_mib, settings.parameters.batch_pairs)
            measured_now += filled.done
            measured = pa.concat_tables(journal.of_device(session.journal, batch.by, receipt.COUNTED))
            return np.asarray(receipt.counted(measured, asked)["tflops"].to_numpy())

        plan = choice.Plan(settings.training_share, seed=settings.seed)
        rounds = choice.choose(pool, source.hardware, plan, measure, _formula(source))
    found = table(rounds, pairs)
    parquet.write(found, chosen)
    return (
        f"{measured_now:,} pairs measured ({device.kind}), {found.num_rows:,} "
        f"chosen of {pairs.num_rows:,} training pairs ({100 * found.num_rows / pairs.num_rows:.1f} %) in "
        f"{len(rounds)} rounds"
    )


def _formula(source: registry.Source) -> Coefficients | None:
    """The coefficients of the formula that leads; None where there is none, or where it would make the times."""
    family = of_arch(source.hardware.arch)
    if source.settings.device == "simulated" or not family.has("simulated"):
        return None
    return load_coefficients(source.coefficients)


def pool_of(problems: pd.DataFrame, built: pd.DataFrame, pairs: Sequence[pa.Table]) -> tuple[Pool, pa.Table]:
    """The supported pairs of training problems, and the same as rows of ``IDENTITY``.

    ``pairs`` are the support tables of all chunks. The order is by problem and then by candidate of the two tables.
    """
    identity = pa.schema([chosen_pairs.SCHEMA.field(name) for name in IDENTITY])
    supported = pa.concat_tables(
        table.filter(support_table.supported(table)).select(IDENTITY).cast(identity) for table in pairs
    )
    problem, candidate = run.positions(problems, built, supported)
    rows = np.flatnonzero((problems["split"] == "train").to_numpy()[problem])
    rows = rows[np.lexsort((candidate[rows], problem[rows]))]
    return Pool(problems, built, problem[rows], candidate[rows]), supported.take(pa.array(rows))


def table(rounds: Sequence[Round], pairs: pa.Table) -> pa.Table:
    """The chosen pairs with what each round saw in the metadata; ``pairs`` are those of the pool."""
    chosen = np.concatenate([one.pairs for one in rounds])
    number = np.repeat(np.arange(len(rounds)), [len(one.pairs) for one in rounds])
    found = pairs.take(pa.array(chosen)).append_column("round", pa.array(number, pa.int32())).cast(chosen_pairs.SCHEMA)
    record = {
        "supported_training_pairs": pairs.num_rows,
        "rounds": [{"pairs": len(one.pairs), "picks_changed": one.picks_changed} for one in rounds],
    }
    return found.replace_schema_metadata({"tileseer": json.dumps(record, sort_keys=True)})
