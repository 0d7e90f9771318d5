"""The benchmark stage: measure the pairs that a journal lacks, some of them again, and write the receipt."""

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import RootModel

from tileseer.build import aliases
from tileseer.build.build import SCHEMA as BUILD
from tileseer.core import documents, parquet
from tileseer.core.progress import Progress
from tileseer.libraries import candidates
from tileseer.measure import again, receipt, support_table
from tileseer.measure.device import STATUSES, Device, Times, list_failures
from tileseer.measure.journal import SCHEMA, Journal, MeasuredBy, journals_in, pair_text, read_journal
from tileseer.measure.session import Session
from tileseer.problems import problem_table
from tileseer.problems.problem import DIMS
from tileseer.problems.shapes import implicit_gemm

PAIRS_BETWEEN_WRITES = 65536
"""Pairs measured between two writes to the journal, at most: what an interruption can cost."""


@dataclass(frozen=True)
class Batch:
    """What is measured in a session."""

    session: Session
    device: Device
    problems: pd.DataFrame
    candidates: pd.DataFrame

    @property
    def by(self) -> MeasuredBy:
        """What its rows say of who measured; the id is 16 hex digits of all that a time depends on besides the pair."""
        names = self.session.arch, self.device.name, self.device.kind
        text = "\n".join((*names, self.device.identity()))
        return MeasuredBy(*names, hashlib.sha256(text.encode()).hexdigest()[:16])


class Spent(RootModel[dict[str, float]]):
    """Seconds that were spent on measuring, by measurement id."""


class SpentTime:
    """What measuring the pairs of a journal cost, in a file beside it."""

    def __init__(self, journal: Path, measurement_id: str) -> None:
        """Read what earlier runs spent; ``UserError`` if the file is damaged."""
        self._path, self._id = journal.with_suffix(".spent.json"), measurement_id
        self._seconds: dict[str, float] = {}
        if self._path.is_file():
            self._seconds = documents.read_document(self._path, Spent).root
        self.earlier_s = self._seconds.get(measurement_id, 0.0)

    def write(self, seconds: float) -> None:
        """Write that this run has spent so many seconds so far."""
        documents.write_document(self._path, Spent(self._seconds | {self._id: round(self.earlier_s + seconds, 1)}))


def missing_pairs(pairs: pa.Table, measured: pa.Table) -> pa.Table:
    """Return the pairs without a measurement by this device, or with one while it was throttled or contended only."""
    have = receipt.counted(measured, pairs)
    have = have.filter(pc.invert(receipt.passing(have)))
    return pairs.filter(pc.invert(pc.is_in(pair_text(pairs), pair_text(have))))


def fill_journal(batch: Batch, pairs: pa.Table, journal: Journal, budget_s: float | None = None) -> int:
    """Take over from other journals, or measure, the pairs that a journal lacks; the number of those measured.

    It is read here, after the wait for its writer: another workflow may have measured these very pairs meanwhile.
    """
    missing = missing_pairs(pairs, read_journal(journal.path, batch.by, receipt.COUNTED_COLUMNS)[0])
    if not missing.num_rows:
        return 0
    adopted = rows_of_neighbours(journal.path, missing, batch.by)
    journal.append(adopted)
    order = order_pairs(batch, missing_pairs(missing, adopted), mixed=budget_s is not None)
    return measure_pairs(batch, *order, journal, budget_s)


def rows_of_neighbours(path: Path, pairs: pa.Table, by: MeasuredBy) -> pa.Table:
    """Return the rows for ``pairs`` in the other journals beside ``path``: kernels may be in other chunks now."""
    kernel_ids = pc.unique(pairs["kernel_id"].cast(pa.string()))
    others = [other for other in journals_in(path.parent) if other != path]
    parts = [read_journal(other, by, kernel_ids=kernel_ids)[0] for other in others]
    return receipt.counted(pa.concat_tables([SCHEMA.empty_table(), *parts]), pairs)


def order_pairs(batch: Batch, pairs: pa.Table, mixed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the (problem row, candidate row) of pairs: in random order, or by problem and candidate.

    The latter where the order makes no difference to the device, unless any beginning of it shall be ``mixed``.
    """
    problem, candidate = positions_of(batch.problems, batch.candidates, pairs)
    if not (batch.device.differs or mixed):
        turn = np.lexsort((candidate, problem))
    else:
        held_out = (batch.problems["split"] == problem_table.SPLITS[1]).to_numpy()
        turn = draw_order(problem, candidate, held_out, batch.session.settings.seed)
    return problem[turn], candidate[turn]


def draw_order(problem: np.ndarray, candidate: np.ndarray, held_out: np.ndarray, seed: int) -> np.ndarray:
    """Return the positions of n pairs in random order, int [n], problem by problem; same seed, same order.

    ``held_out`` (bool [P]) are the problems for validation. They are spread evenly among the others, so that any
    beginning of the order can be learnt from and judged. All candidates of a problem follow each other, because they
    are compared with each other: what drifts in between is small, and the operands are generated once.
    """
    generator = np.random.default_rng(seed)
    # The order of the problems does not depend on the pairs: all chunks begin with the same ones.
    shuffled, turn = generator.permutation(len(held_out)), np.empty(len(held_out))
    for part in (held_out, ~held_out):
        own = shuffled[part[shuffled]]
        turn[own] = (np.arange(len(own)) + 0.5) / max(len(own), 1)
    by_pair = np.lexsort((candidate, problem))
    drawn = by_pair[generator.permutation(len(by_pair))]
    return drawn[np.lexsort((problem[drawn], turn[problem[drawn]]))]


def positions_of(problems: pd.DataFrame, candidates: pd.DataFrame, pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the (problem row, candidate row) of pairs, in their order, int [n] each."""
    names = [pa.array(candidates[name].astype(str), pa.string()) for name in ("kernel_id", "split_k")]
    texts = [pairs[name].cast(pa.string()) for name in ("kernel_id", "split_k")]
    keys, labels = (pc.binary_join_element_wise(*columns, "/") for columns in (names, texts))
    problem_keys = pa.array(problems["problem_key"], pa.string())
    problem = pc.index_in(pairs["problem_key"].cast(pa.string()), value_set=problem_keys)
    return problem.to_numpy(), pc.index_in(labels, value_set=keys).to_numpy()


def measure_pairs(
    batch: Batch, problem: np.ndarray, candidate: np.ndarray, journal: Journal, budget_s: float | None = None
) -> int:
    """Measure pairs, append each batch to the journal as soon as it is there, and return the number of measured pairs.

    With a budget no batch is begun after it is spent; what earlier runs spent on this journal counts.
    """
    spent = SpentTime(journal.path, batch.by.measurement_id)
    if budget_s is not None:
        budget_s = max(budget_s - spent.earlier_s, 0.0)
    flops = implicit_gemm(batch.problems, batch.session.variant)["flops"].to_numpy()
    step = min(PAIRS_BETWEEN_WRITES, batch.device.largest_batch)
    best = 0.0
    with Progress("measure", len(problem), "pairs", budget_s) as progress:
        while progress.done < len(problem) and not progress.is_spent:
            # No more than the budget still pays for: a batch is not left half measured.
            part = slice(progress.done, progress.done + progress.affordable(step))
            times = batch.device.measure(batch.problems, batch.candidates, problem[part], candidate[part])
            journal.append(journal_rows(batch, problem[part], candidate[part], times, flops))
            best = max(best, np.nanmax(flops[problem[part]] / times.latency_ms, initial=0.0) * 1e-9)
            failed = int(np.count_nonzero(times.status))
            progress.add(len(times.status), failed, f"{best:,.1f} TFLOPS" if best else "", times.seconds)
            spent.write(progress.spent_s)
    return progress.done


def journal_rows(batch: Batch, problem: np.ndarray, candidate: np.ndarray, times: Times, flops: np.ndarray) -> pa.Table:
    """Return the journal rows (``SCHEMA``) for n measured pairs; ``flops`` are useful FLOP by problem row."""
    problems, candidates, count = batch.problems, batch.candidates, len(problem)
    with np.errstate(invalid="ignore"):
        tflops = flops[problem] / times.latency_ms * 1e-9
    # What the device does not say of a pair is its status.
    errors = pa.array(["" if status == "ok" else status for status in STATUSES]).take(pa.array(times.status))
    non_zero = pa.nulls(count) if times.non_zero is None else pa.array(times.non_zero, mask=times.non_zero < 0)
    columns = {
        "kernel": _take(candidates["kernel"], candidate),
        "problem_idx": problem,
        **{name: problems[name].to_numpy()[problem] for name in DIMS},
        # A time that is missing has to be a null: NaN would be a number.
        "latency_ms": pa.array(times.latency_ms, from_pandas=True),
        "tflops": pa.array(tflops, from_pandas=True),
        "non_zero": non_zero,
        "status": _take(pd.Series(STATUSES), times.status),
        "error": errors if times.error is None else pa.array(times.error, pa.string()),
        "samples": times.samples,
        "latency_cv": pa.array(times.latency_cv, from_pandas=True),
        "split_k": candidates["split_k"].to_numpy()[candidate],
        "kernel_id": _take(candidates["kernel_id"], candidate),
        "problem_key": _take(problems["problem_key"], problem),
        "seed": np.full(count, batch.session.settings.seed, np.int64),
        **{name: pa.repeat(value, count) for name, value in batch.by._asdict().items()},
        # More digits than the clock has would only make the journal longer.
        "sentinel": pa.array(np.round(times.sentinel, 5), from_pandas=True),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA)


def _take(values: pd.Series, index: np.ndarray) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(index))


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
        asked = parameters.pairs_again > 0 or parameters.contenders > 1
        share = again.SHARE if asked and device.differs else 0.0
        done = fill_journal(batch, pairs, journal, budget_s and budget_s * (1 - share))
        journal.compress()
        seconds = time.monotonic() - begin
    rows, malformed = read_journal(session.journal, batch.by, receipt.COUNTED_COLUMNS)
    rows = receipt.counted(rows, pairs)
    second = again.NOTHING
    if share:
        begin = time.monotonic()
        second = measure_again(batch, rows, second_journal, budget_s and budget_s * share)
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
        differences=again.differences(rows, second, parameters, settings.seed),
    )
    failed, kept = list_failures(made.by_status), made.pairs - done
    parts = [
        done and f"{done:,} pairs measured in {seconds:.0f} s ({device.kind} times)",
        kept and f"{kept:,} pairs were measured before",
        made.skipped and f"{made.skipped:,} pairs are not measured, as the time of benchmark.budget is over",
        failed and f"failed: {failed}",
        made.again and f"{made.again:,} pairs measured twice, to see how far times differ",
        made.malformed_lines and f"{made.malformed_lines:,} damaged lines of the journal left out",
        waited >= 1 and f"waited {waited:.0f} s for another run on this GPU",
    ]
    return made, "; ".join(part for part in parts if part) or "no pair can run"


def measure_again(first: Batch, rows: pa.Table, path: Path, budget_s: float | None) -> pa.Table:
    """Repeat some measurements of ``rows`` in a session of its own; the rows of the journal ``path`` that count."""
    session = replace(first.session, journal=path)
    settings = session.settings

    def counted() -> pa.Table:
        return again.counted(read_journal(path, first.by)[0], rows)

    if not again.plan_again(rows, counted(), settings.parameters, settings.seed).num_rows:
        return counted()
    with session.hold_device() as (device, _), Journal(path, session.lock_timeout_s) as journal:
        batch = replace(first, session=session, device=device)
        # Once more, now that no other workflow measures them.
        pending = again.plan_again(rows, counted(), settings.parameters, settings.seed)
        order = positions_of(batch.problems, batch.candidates, pending)
        measure_pairs(batch, *order, journal, budget_s)
        journal.compress()
    return counted()
