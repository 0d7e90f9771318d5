#!/usr/bin/env python3
"""Choose which training pairs are worth measuring, in rounds of measuring and learning, holding the device's lock.

What is measured goes to a journal beside those of the chunks, which take it over from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.active import active_tables, choice
from tileseer.benchmark import adopt, journal, receipt, run
from tileseer.compile import aliases
from tileseer.conv.operation import Operation
from tileseer.core import parquet
from tileseer.core.errors import reports_user_errors
from tileseer.devices import registry
from tileseer.families import candidates
from tileseer.gpu import hardware
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings


@reports_user_errors
def main(argv: list[str] | None = None) -> None:
    """Read the supported pairs of all chunks, measure in rounds, write the chosen pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--operation", required=True, type=Operation.parse)
    parser.add_argument("--support", required=True, type=Path, nargs="+", help="support tables, one a chunk")
    parser.add_argument("--build", required=True, type=Path, nargs="+", help="build tables, one a chunk")
    parser.add_argument("--aliases", type=Path, help="kernels that are not measured, because another is for them")
    parser.add_argument("--problems", required=True, type=Path)
    parser.add_argument("--hardware", required=True, type=Path)
    parser.add_argument("--product", required=True, help="GPU product in the hardware table")
    parser.add_argument("--coefficients", required=True, type=Path)
    parser.add_argument("--settings", default="{}", help="section benchmark of config.yaml as JSON")
    parser.add_argument("--lock", default="{}", help="section lock of config.yaml as JSON")
    parser.add_argument("--driver", type=Path, help="measuring driver, for a real GPU")
    parser.add_argument("--modules", type=Path, nargs="*", default=[], help="kernel libraries, one a build table")
    parser.add_argument("--journal", required=True, type=Path, help="CSV that measurements are appended to")
    parser.add_argument("--output", required=True, type=Path, help="table of the chosen pairs to write")
    args = parser.parse_args(argv)

    settings = BenchmarkSettings.from_json(args.settings)
    locking = LockSettings.from_json(args.lock)
    product = hardware.get(args.hardware, args.product)
    tables = [parquet.read(path) for path in args.build]
    source = registry.Source(
        settings=settings,
        hardware=product,
        coefficients=args.coefficients,
        driver=args.driver,
        modules=registry.modules_of(tables, args.modules),
        details=args.journal.with_suffix(".details.jsonl"),
    )
    problems = parquet.read(args.problems).to_pandas()
    built = pd.concat([candidates.from_build(table) for table in tables])
    # How kernels were dealt to chunks must not matter.
    built = built.sort_values("candidate", ignore_index=True)
    known = aliases.read(args.aliases)
    supports = [parquet.read(path) for path in args.support]
    supports = [part.filter(aliases.own(part, known)) for part in supports]
    pool, pairs = active_tables.pool(problems, built, supports)

    with registry.claimed(source, locking) as (device, _), journal.Journal(args.journal, locking.timeout_s) as book:
        batch = run.Batch(args.arch, args.operation.variant, settings.seed, device, problems, built)
        measured_now = 0

        def measure(rows: np.ndarray) -> np.ndarray:
            nonlocal measured_now
            wanted = pairs.take(rows)
            missing = run.missing(batch, wanted, journal.read(args.journal)[0])
            adopted = adopt.from_neighbours(args.journal, missing, batch.measurement_id)
            book.append(adopted)
            missing = run.missing(batch, missing, adopted)
            measured_now += missing.num_rows
            run.measure(batch, *run.rows_of(batch, missing), book, settings.parameters.batch_pairs)
            found = receipt.counted(journal.read(args.journal)[0], batch.measurement_id, wanted)
            return found["tflops"].to_numpy()

        rounds = choice.choose(pool, product, choice.Plan(settings.training_share, seed=settings.seed), measure)
    chosen = active_tables.table(rounds, pairs)
    parquet.write(chosen, args.output)
    print(
        f"{args.arch} {args.operation}: {measured_now:,} pairs measured ({device.kind}), {chosen.num_rows:,} chosen of "
        f"{pairs.num_rows:,} training pairs ({100 * chosen.num_rows / pairs.num_rows:.1f} %) in {len(rounds)} rounds"
    )


if __name__ == "__main__":
    raise SystemExit(main())
