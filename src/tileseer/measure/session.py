"""Measure the pairs that a journal does not hold yet."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.compile.build import library_of
from tileseer.config.benchmark import BenchmarkSettings, LockSettings
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.core.script import Settings
from tileseer.gpus.hardware import read_hardware
from tileseer.measure import devices, receipt
from tileseer.measure.device import SLOWEST_MS, STATUSES, Device, Times
from tileseer.measure.harness.cudnn_plans import LIBRARY
from tileseer.measure.journal import SCHEMA, Journal, MeasuredBy, read_journal
from tileseer.measure.pairs import pair_text
from tileseer.problems.implicit_gemm import implicit_gemm
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS


class Session:
    """One job that measures, from the options of its script."""

    def __init__(
        self, arch: str, operation: str, settings: Settings, hardware: Path, product: str, coefficients: Path,
        journal: Path, driver: Path | None,
    ) -> None:  # fmt: skip
        self.arch, self.operation, self.journal = arch, Operation.parse(operation), journal
        self.settings = BenchmarkSettings.of(settings, "benchmark")
        self.locking = LockSettings.of(settings, "lock")
        self._source = devices.DeviceSource(
            settings=self.settings,
            hardware=read_hardware(hardware, product),
            coefficients=coefficients,
            driver=driver,
            details=journal.with_suffix(".details.jsonl"),
        )

    def source_of(self, tables: list[pa.Table], modules: list[Path]) -> devices.DeviceSource:
        """Source of the device for the kernels of some build tables and their modules, one a table."""
        if plans := library_of(tables[0]):
            return replace(self._source, plans=plans)
        return replace(self._source, modules=devices.modules_of(tables, modules))

    def source_of_plans(self) -> devices.DeviceSource:
        """Source of the device that cuDNN, of whatever version, is asked on for its plans; nothing is measured."""
        return replace(self._source, plans=LIBRARY, details=None)


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


def missing_pairs(pairs: pa.Table, measured: pa.Table) -> pa.Table:
    """Pairs without a measurement by this device, or with one while it was throttled or contended only."""
    have = receipt.counted(measured, pairs)
    have = have.filter(pc.invert(receipt.passing(have)))
    return pairs.filter(pc.invert(pc.is_in(pair_text(pairs), pair_text(have))))


@dataclass(frozen=True)
class Filled:
    """Outcome of filling a journal."""

    malformed: int
    """Lines of the journal that are no measurements."""
    done: int
    """Pairs that were measured now."""
    left: int
    """Pairs beyond the budget."""


def fill_journal(
    batch: Batch, pairs: pa.Table, path: Path, journal: Journal, batch_pairs: int, budget_s: float | None = None
) -> Filled:
    """Take over from other journals, or measure, the pairs that the journal at ``path`` lacks.

    It is read here, after the wait for its writer: another workflow may have measured these very pairs meanwhile.
    """
    measured, malformed = read_journal(path, batch.by, receipt.COUNTED)
    missing = missing_pairs(pairs, measured)
    if missing.num_rows:
        adopted = rows_of_neighbours(path, missing, batch.by)
        journal.append(adopted)
        missing = missing_pairs(missing, adopted)
    order = order_pairs(batch, missing, in_rounds=budget_s is not None)
    done = measure_pairs(batch, *order, journal, batch_pairs, budget_s) if missing.num_rows else 0
    return Filled(malformed.num_rows, done, missing.num_rows - done)


def rows_of_neighbours(path: Path, pairs: pa.Table, by: MeasuredBy) -> pa.Table:
    """Rows for ``pairs`` in the other journals beside ``path``: kernels may have been dealt to chunks anew."""
    kernel_ids = pc.unique(pairs["kernel_id"].cast(pa.string()))
    others = sorted(other for other in path.parent.glob("*.csv") if other != path)
    parts = [read_journal(other, by, kernel_ids=kernel_ids)[0] for other in others]
    return receipt.counted(pa.concat_tables([SCHEMA.empty_table(), *parts]), pairs)


def order_pairs(batch: Batch, pairs: pa.Table, in_rounds: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(problem row, candidate row) of pairs: by problem and candidate, or in the device's random order.

    ``in_rounds``: one pair of each problem after the other, so that any beginning of the order covers all problems.
    """
    problem, candidate = positions_of(batch.problems, batch.candidates, pairs)
    seed = batch.device.order_seed
    if in_rounds:
        turn = order_by_rounds(problem, candidate, batch.seed)
    else:
        turn = np.lexsort((candidate, problem)) if seed is None else interleave(problem, candidate, seed)
    return problem[turn], candidate[turn]


def order_by_rounds(problem: np.ndarray, candidate: np.ndarray, seed: int) -> np.ndarray:
    """Positions of n pairs in rounds of one random pair of each problem, int [n]; same seed, same order."""
    by_pair = np.lexsort((candidate, problem))
    drawn = by_pair[np.random.default_rng(seed).permutation(len(by_pair))]
    number = pd.Series(problem[drawn]).groupby(problem[drawn]).cumcount().to_numpy()
    return drawn[np.argsort(number, kind="stable")]


def interleave(problem: np.ndarray, candidate: np.ndarray, seed: int) -> np.ndarray:
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


def positions_of(problems: pd.DataFrame, candidates: pd.DataFrame, pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(problem row, candidate row) of pairs, in their order, int32 [n] each."""
    keys = pa.array(problems["problem_key"], pa.string())
    names = [pa.array(candidates[name].astype(str), pa.string()) for name in ("kernel_id", "split_k")]
    texts = [pairs[name].cast(pa.string()) for name in ("kernel_id", "split_k")]
    problem = pc.index_in(pairs["problem_key"].cast(pa.string()), value_set=keys)
    candidate = pc.index_in(
        pc.binary_join_element_wise(*texts, "/"), value_set=pc.binary_join_element_wise(*names, "/")
    )
    return problem.to_numpy(), candidate.to_numpy()


def measure_pairs(
    batch: Batch,
    problem: np.ndarray,
    candidate: np.ndarray,
    journal: Journal,
    batch_pairs: int,
    budget_s: float | None = None,
) -> int:
    """Measure pairs and append each batch to the journal as soon as it is there; the number of measured pairs.

    With a budget no batch is begun after it is spent.
    """
    flops = implicit_gemm(batch.problems, batch.variant)["flops"].to_numpy()
    step = min(batch_pairs, batch.device.largest_batch)
    best = 0.0
    with Progress("measure", len(problem), "pairs", budget_s) as progress:
        while progress.done < len(problem) and not progress.is_spent:
            # No more than the budget still pays for: a batch is not left half measured.
            part = slice(progress.done, progress.done + progress.affordable(step))
            # What overflows by wrong coefficients is refused below.
            with np.errstate(all="ignore"):
                times = batch.device.measure(batch.problems, batch.candidates, problem[part], candidate[part])
            if batch.device.kind == "simulated":
                _refuse_impossible(times)
            journal.append(journal_rows(batch, problem[part], candidate[part], times, flops))
            best = max(best, np.nanmax(flops[problem[part]] / times.latency_ms, initial=0.0) * 1e-9)
            failed = int(np.count_nonzero(times.status))
            progress.add(len(times.status), failed, f"{best:,.1f} TFLOPS" if best else "", times.seconds)
    return progress.done


def _refuse_impossible(times: Times) -> None:
    """Raise a ``UserError`` for simulated times that a journal would not take back; their coefficients are wrong."""
    time = times.latency_ms[times.status == STATUSES.index("ok")]
    if not np.all((time > 0) & (time < SLOWEST_MS)):
        raise UserError(
            "simulated device: a time is 0, no number, or an hour or more; correct config/simulated_device.yaml"
        )


def journal_rows(batch: Batch, problem: np.ndarray, candidate: np.ndarray, times: Times, flops: np.ndarray) -> pa.Table:
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
