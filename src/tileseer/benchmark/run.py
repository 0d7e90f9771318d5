"""Measure the pairs that a journal does not hold yet."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark import chunk_parts, journal, journal_index, receipt
from tileseer.benchmark.budget import Rounds
from tileseer.benchmark.journal import SCHEMA, Journal, MeasuredBy
from tileseer.benchmark.pairs import IDENTITY, pair_text
from tileseer.conv.implicit_gemm import implicit_gemm
from tileseer.conv.operation import Operation
from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.core.stage import Settings
from tileseer.devices import registry
from tileseer.devices.base import SLOWEST_MS, STATUSES, Device, Times
from tileseer.gpu import hardware as products
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings


class Session:
    """One job that measures, from the options of its script."""

    def __init__(
        self, arch: str, operation: str, settings: Settings, hardware: Path, product: str, coefficients: Path,
        journal: Path, driver: Path | None,
    ) -> None:  # fmt: skip
        self.arch, self.operation, self.journal = arch, Operation.parse(operation), journal
        self.settings = BenchmarkSettings.of(settings, "benchmark")
        self.locking = LockSettings.of(settings, "lock")
        self._source = registry.Source(
            settings=self.settings,
            hardware=products.get(hardware, product),
            coefficients=coefficients,
            driver=driver,
            operation=operation,
            details=journal.with_suffix(".details.jsonl"),
        )

    def source_of(self, tables: list[pa.Table], modules: list[Path]) -> registry.Source:
        """Source of the device for the kernels of some build tables and their modules, one a table."""
        return replace(self._source, modules=registry.modules_of(tables, modules))


@dataclass(frozen=True)
class Batch:
    """What is measured, and the labels of its rows."""

    arch: str
    variant: str
    seed: int
    device: Device
    problems: pd.DataFrame
    candidates: pd.DataFrame

    @property
    def by(self) -> MeasuredBy:
        """What its rows say of who measured; the id is 16 hex digits of all that a time depends on besides the pair."""
        names = self.arch, self.device.name, self.device.kind
        text = "\n".join((*names, self.device.identity()))
        return MeasuredBy(*names, hashlib.sha256(text.encode()).hexdigest()[:16])


def missing(wanted: pa.Table, measured: pa.Table) -> pa.Table:
    """Wanted pairs without a measurement by this device, or with one while it was throttled or contended only."""
    have = receipt.counted(measured, wanted)
    have = have.filter(pc.invert(receipt.passing(have)))
    return wanted.filter(pc.invert(pc.is_in(pair_text(wanted), pair_text(have))))


@dataclass(frozen=True)
class Filled:
    """Outcome of filling a journal."""

    malformed: int
    """Lines of the journal that are no measurements."""
    done: int
    """Pairs that were measured now."""
    left: int
    """Pairs beyond the budget."""


def parts(
    batch: Batch, wanted: pa.Table, path: Path, memory_mib: int, malformed: list[pa.Table] | None = None
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield wanted pairs and what the journal at ``path`` has of them, as many at a time as fit into the memory."""
    measured = journal.of_device(path, batch.by, receipt.COUNTED, malformed)
    most = chunk_parts.pairs_at_once(memory_mib, chunk_parts.ROW_BYTES)
    return chunk_parts.parts(wanted, measured, most, path.parent)


def fill(
    batch: Batch, wanted: pa.Table, path: Path, book: Journal, memory_mib: int, batch_pairs: int,
    budget_s: float | None = None,
) -> Filled:  # fmt: skip
    """Take over from other journals, or measure, the wanted pairs that the journal at ``path`` lacks.

    It is read here, after the wait for its writer: another workflow may have measured these very pairs meanwhile.
    """
    malformed: list[pa.Table] = []
    lacking = []
    for pairs, measured in parts(batch, wanted, path, memory_mib, malformed):
        todo = missing(pairs, measured)
        if todo.num_rows:
            adopted = journal_index.from_neighbours(path, todo, batch.by)
            book.append(adopted)
            todo = missing(todo, adopted)
        lacking.append(todo.select(IDENTITY))
    left = pa.concat_tables(lacking)
    done = measure(batch, *rows_of(batch, left), book, batch_pairs, budget_s) if left.num_rows else 0
    return Filled(sum(map(len, malformed)), done, left.num_rows - done)


def rows_of(batch: Batch, pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(problem row, candidate row) of pairs: by problem and candidate, or in the device's random order."""
    problem, candidate = positions(batch.problems, batch.candidates, pairs)
    seed = batch.device.order_seed
    turn = np.lexsort((candidate, problem)) if seed is None else interleaved(problem, candidate, seed)
    return problem[turn], candidate[turn]


def interleaved(problem: np.ndarray, candidate: np.ndarray, seed: int) -> np.ndarray:
    """Positions of n pairs in random order: the problems, and within each problem its candidates.

    The candidates of a problem follow each other, because they are compared with each other: what drifts in between
    is small, and the operands are generated once. ``problem`` and ``candidate`` are int [n]; same seed, same order.
    """
    generator = np.random.default_rng(seed)
    pairs = np.lexsort((candidate, problem))
    problems, first = np.unique(problem[pairs], return_index=True)
    groups = np.split(pairs, first[1:]) if len(problems) else []
    order = [generator.permutation(groups[number]) for number in generator.permutation(len(groups))]
    return np.concatenate(order) if order else pairs


def positions(problems: pd.DataFrame, candidates: pd.DataFrame, pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(problem row, candidate row) of pairs, in their order, int32 [n] each."""
    keys = pa.array(problems["problem_key"], pa.string())
    names = [pa.array(candidates[name].astype(str), pa.string()) for name in ("kernel_id", "split_k")]
    asked = [pairs[name].cast(pa.string()) for name in ("kernel_id", "split_k")]
    problem = pc.index_in(pairs["problem_key"].cast(pa.string()), value_set=keys)
    candidate = pc.index_in(
        pc.binary_join_element_wise(*asked, "/"), value_set=pc.binary_join_element_wise(*names, "/")
    )
    return problem.to_numpy(), candidate.to_numpy()


def measure(
    batch: Batch,
    problem: np.ndarray,
    candidate: np.ndarray,
    book: Journal,
    batch_pairs: int,
    budget_s: float | None = None,
    in_order: bool = False,
) -> int:
    """Measure pairs and append each batch to the journal as soon as it is there; the number of measured pairs.

    With a budget the most informative pairs come first, unless they are to be measured ``in_order``, and no batch is
    begun after it is spent.
    """
    flops = implicit_gemm(batch.problems, batch.variant)["flops"].to_numpy()
    step = min(batch_pairs, batch.device.largest_batch)
    best = 0.0
    rounds = None
    if budget_s is not None and not in_order:
        rounds = Rounds(batch.problems, batch.variant, problem, candidate, batch.seed)
    with Progress("measure", len(problem), "pairs", budget_s) as progress:
        for p, c in rounds or ((problem, candidate),):
            done = 0
            while done < len(p):
                # No more than the budget still pays for: a batch is not left half measured.
                part = slice(done, done + progress.affordable(step))
                done = part.stop
                # What overflows by wrong coefficients is refused below.
                with np.errstate(all="ignore"):
                    times = batch.device.measure(batch.problems, batch.candidates, p[part], c[part])
                if batch.device.kind == "simulated":
                    _refuse_impossible(times)
                book.append(rows(batch, p[part], c[part], times, flops))
                if rounds is not None:
                    rounds.learn(p[part], c[part], times.latency_ms)
                best = max(best, np.nanmax(flops[p[part]] / times.latency_ms, initial=0.0) * 1e-9)
                failed = int(np.count_nonzero(times.status))
                shown = f"{best:,.1f} TFLOPS" if best else ""
                progress.add(len(p[part]), failed, shown, times.seconds)
                if progress.is_spent:
                    return progress.done
    return progress.done


def _refuse_impossible(times: Times) -> None:
    """Raise a ``UserError`` for simulated times that a journal would not take back; their coefficients are wrong."""
    time = times.latency_ms[times.status == STATUSES.index("ok")]
    if not np.all((time > 0) & (time < SLOWEST_MS)):
        raise UserError(
            "simulated device: a time is 0, no number, or an hour or more; correct config/simulated_device.yaml"
        )


def rows(batch: Batch, problem: np.ndarray, candidate: np.ndarray, times: Times, flops: np.ndarray) -> pa.Table:
    """Journal rows (``SCHEMA``) for n measured pairs; ``flops`` are useful FLOP by problem row."""
    problems, candidates, count = batch.problems, batch.candidates, len(problem)
    with np.errstate(invalid="ignore"):
        tflops = flops[problem] / times.latency_ms * 1e-9
    # What the device does not say of a pair is its status.
    errors = pa.array(["" if status == "ok" else status for status in STATUSES]).take(pa.array(times.status))
    # More digits than the clock has would only make the journal longer.
    sentinel = pa.nulls(count) if times.sentinel is None else pa.array(np.round(times.sentinel, 5), from_pandas=True)
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
        "seed": np.full(count, batch.seed, np.int64),
        **{name: pa.repeat(value, count) for name, value in batch.by._asdict().items()},
        "sentinel": sentinel,
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA)


def _take(values: pd.Series, index: np.ndarray) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(index))
