"""How the dataset is put together, from the journals, the build tables and the support tables of all chunks.

Pairs that the CPU already refused have the status ``unsupported``; every measured pair has the row of its journal.
Malformed journal lines go to a quarantine file. Chunks are taken one at a time, a large one in parts (``chunk_parts``),
and what they add waits in a file of numbers until it is sorted (``dataset_rows``): a setting bounds the memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark import chosen_pairs, repeats
from tileseer.benchmark import journal as journals
from tileseer.benchmark.receipt import COUNTED, Receipt, RowsDigest, counted, digest, pair_text
from tileseer.compile import aliases
from tileseer.core import parquet
from tileseer.core.atomic import naming
from tileseer.core.errors import UserError
from tileseer.dataset import chunk_parts
from tileseer.dataset.dataset_rows import ROW_GROUP, Rows
from tileseer.dataset.schema import BETWEEN_RUNS, SCHEMA, SCHEMA_VERSION
from tileseer.settings.dataset import DatasetSettings
from tileseer.support import support_table

_MEASURED = ("latency_ms", "tflops", "non_zero", "samples", "latency_cv", "sentinel")
WRONG_ELSEWHERE = "the kernel computes a wrong result for another problem"
BEYOND_BUDGET = "beyond the budget"
MEASURED_AGAIN = "pairs of the same jobs, drawn at random and measured again by another worker"
_SKIPPED = -2
_BUILD_FAILURES = ("compile_error", "compile_timeout")


@dataclass(frozen=True)
class Chunk:
    """The files of one chunk: its build table, its support table and its benchmark receipt."""

    build: Path
    support: Path
    receipt: Path


@dataclass(frozen=True)
class Quarantined:
    """A journal line that is no measurement."""

    journal: str
    line: int
    reason: str
    text: str


def write(
    chunks: Sequence[Chunk],
    problems: pa.Table,
    arch: str,
    operation: str,
    output: Path,
    chosen: pa.Table | None = None,
    known: pa.Table | None = None,
    memory_mib: int = DatasetSettings().memory_mib,
) -> tuple[int, list[Quarantined]]:
    """Write the dataset (``SCHEMA``, provenance in its metadata); return its rows and the journals' malformed lines.

    With ``chosen`` (``chosen_pairs``), a supported pair that was not to be measured has no row. An alias (``known``,
    ``aliases.SCHEMA``) has the rows of the kernel that was measured in its stead. The bytes do not depend on
    ``memory_mib``.
    """
    known = aliases.SCHEMA.empty_table() if known is None else known
    wanted = _Wanted(problems, chosen, known, _lent(chunks, known))
    most_pairs = chunk_parts.pairs_at_once(memory_mib)
    quarantine: list[Quarantined] = []
    receipts = []
    output.parent.mkdir(parents=True, exist_ok=True)
    with naming(output), tempfile.TemporaryFile(dir=output.parent) as file:
        rows = Rows(file, problems)
        for chunk in chunks:
            receipt = Receipt.read(chunk.receipt)
            receipts.append(receipt)
            build = parquet.read(chunk.build)
            named = build.append_column("alias_of", aliases.names(build["kernel"].combine_chunks(), known))
            read = _Journal(Path(receipt.journal))
            vouched = _Vouched(chunk, receipt)
            support = parquet.read(chunk.support)
            for pairs, measured in chunk_parts.parts(support, read.rows(), most_pairs, output.parent):
                rows.add(named, _pairs(pairs, measured, build, wanted, vouched))
            vouched.check()
            quarantine += read.quarantine
        schema = SCHEMA.with_metadata(_provenance(receipts, rows.statuses, arch, operation))
        with parquet.writing(output, schema) as writer:
            for group in rows.groups():
                writer.write_table(group.cast(schema), row_group_size=ROW_GROUP)
                # Before the next one is made: two do not fit into the memory.
                del group
    return rows.length, quarantine


def _lent(chunks: Sequence[Chunk], known: pa.Table) -> pa.Table:
    """Journal rows of the kernels that were measured in the stead of others, in whatever chunk they are."""
    found = [_rows_that_count([])]
    for chunk in chunks if known.num_rows else ():
        receipt = Receipt.read(chunk.receipt)
        rows = pa.concat_tables(_Journal(Path(receipt.journal)).rows())
        rows = rows.filter(pc.is_in(rows["kernel_id"], value_set=known["alias_of_id"].combine_chunks()))
        pairs = parquet.read(chunk.support)
        rows = counted(rows, receipt.measurement_id, pairs.filter(support_table.supported(pairs)))
        found.append(repeats.combined(rows, _second(receipt, rows)))
    return pa.concat_tables(found)


def _second(receipt: Receipt, rows: pa.Table) -> pa.Table:
    """What counts of the second journal about the ``rows`` of the first one."""
    if not receipt.repeats:
        return repeats.NOTHING
    second = journals.read(repeats.journal_of(Path(receipt.journal)))[0]
    return repeats.counted(second, receipt.measurement_id, rows)


class _Journal:
    """A journal that is read piece by piece; ``quarantine`` grows with the pieces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.quarantine: list[Quarantined] = []

    def rows(self) -> Iterator[pa.Table]:
        """Yield what counts of the rows, at least one table."""
        yield _rows_that_count([])
        for rows, malformed in journals.batches(self._path):
            self.quarantine += [Quarantined(self._path.as_posix(), m.line, m.reason, m.text) for m in malformed]
            yield _rows_that_count([rows])


class _Vouched:
    """What a receipt vouches for, compared with the rows of a chunk's parts."""

    def __init__(self, chunk: Chunk, receipt: Receipt) -> None:
        self._chunk = chunk
        self.receipt = receipt
        self._pairs = 0
        self._digest = RowsDigest()
        self._seconds: list[pa.Table] = []

    def add(self, rows: pa.Table) -> pa.Table:
        """Count the rows of a part; return them with the mean of both times where they were measured again."""
        self._pairs += rows.num_rows
        self._digest.update(rows)
        self._seconds.append(_second(self.receipt, rows))
        return repeats.combined(rows, self._seconds[-1])

    def check(self) -> None:
        """Raise a ``UserError`` unless the rows are those of the receipt."""
        if self._pairs != self.receipt.pairs or self._digest.hexdigest() != self.receipt.rows_sha256:
            raise UserError(
                f"{self.receipt.journal}: {self._pairs} of the {self.receipt.pairs} pairs that {self._chunk.receipt} "
                "vouches for are there, or their times were changed; delete the receipt and run again to measure what "
                "is missing"
            )
        if self.receipt.repeats and digest(pa.concat_tables(self._seconds)) != self.receipt.repeats_sha256:
            raise UserError(
                f"{repeats.journal_of(Path(self.receipt.journal))}: its rows are not those that {self._chunk.receipt} "
                "vouches for; delete the receipt and run again to measure what is missing"
            )


@dataclass(frozen=True)
class _Wanted:
    """Which pairs were to be measured, and under which name."""

    problems: pa.Table
    chosen: pa.Table | None
    known: pa.Table
    lent: pa.Table


def _rows_that_count(parts: Sequence[pa.Table]) -> pa.Table:
    """Journal rows with the columns that decide what the dataset says."""
    columns = [*COUNTED, "sentinel", "measurement_id"]
    return pa.concat_tables([part.select(columns) for part in (journals.SCHEMA.empty_table(), *parts)])


def _pairs(
    pairs: pa.Table, measured: pa.Table, build: pa.Table, wanted: _Wanted, vouched: _Vouched
) -> dict[str, pa.Array]:
    """What ``Rows.add`` takes, for every pair of a part that was refused or measured."""
    to_measure = chosen_pairs.wanted(aliases.as_measured(pairs, wanted.known), wanted.problems, wanted.chosen)
    left_out = pc.and_not(support_table.supported(pairs), to_measure)
    pairs = pairs.filter(pc.invert(left_out))
    rule = _text(pairs, "rule")
    supported = support_table.supported(pairs)
    results = _results(measured, pairs.filter(supported), np.flatnonzero(supported), len(rule), wanted, vouched)
    kernel = pc.index_in(_text(pairs, "kernel_id"), value_set=_text(build, "kernel_id"))
    built = {name: build[name].combine_chunks().take(kernel) for name in ("kernel", "build_status", "build_reason")}
    results = _without_wrong_kernels(results, built["kernel"])
    refused_by = pc.if_else(pc.equal(rule, support_table.NOT_BUILT), built["build_reason"], rule)
    return {
        **{name: results[name] for name in _MEASURED},
        "problem_key": _text(pairs, "problem_key"),
        "build": kernel,
        "split_k": pairs["split_k"].combine_chunks(),
        "status": pc.coalesce(results["status"], _status_of_refused(built["build_status"])),
        "reason": pc.coalesce(results["error"], refused_by),
    }


def _results(
    measured: pa.Table, pairs: pa.Table, position: np.ndarray, length: int, wanted: _Wanted, vouched: _Vouched
) -> dict[str, pa.Array]:
    """What was measured, at the positions of the measured ``pairs`` among all; nulls elsewhere."""
    rows = counted(measured, vouched.receipt.measurement_id, pairs.filter(aliases.own(pairs, wanted.known)))
    rows = pa.concat_tables([vouched.add(rows), wanted.lent])
    found = pc.index_in(pair_text(aliases.as_measured(pairs, wanted.known)), value_set=pair_text(rows).combine_chunks())
    index = np.full(length, -1, np.int64)
    index[position] = pc.fill_null(found, _SKIPPED).to_numpy()
    take = pa.array(index, mask=index < 0)
    results = {name: rows[name].combine_chunks().take(take) for name in (*_MEASURED, "status", "error")}
    skipped = pa.array(index == _SKIPPED)
    # A zero says that no sample was taken, a null that the pair was never to be sent to the device.
    told = {"status": "skipped", "error": BEYOND_BUDGET, "samples": pa.scalar(0, rows["samples"].type)}
    return results | {name: pc.if_else(skipped, value, results[name]) for name, value in told.items()}


def _without_wrong_kernels(results: dict[str, pa.Array], kernel: pa.Array) -> dict[str, pa.Array]:
    """Results with every time of a kernel removed that computed a wrong result anywhere.

    Its other pairs were perhaps not compared with a reference; nobody should choose it.
    """
    wrong = pc.unique(kernel.filter(pc.fill_null(pc.equal(results["status"], "wrong_result"), False)))
    barred = pc.and_(pc.is_in(kernel, wrong), pc.fill_null(pc.equal(results["status"], "ok"), False))
    told = {"status": "wrong_result", "error": WRONG_ELSEWHERE, "latency_ms": None, "tflops": None}
    return results | {
        name: pc.if_else(barred, pa.scalar(value, results[name].type), results[name]) for name, value in told.items()
    }


def _status_of_refused(build_status: pa.Array) -> pa.Array:
    """A pair of a kernel whose build failed has that failure as its status; all others are unsupported."""
    # Both are limits of this machine, not of the kernel.
    build_status = pc.if_else(pc.equal(build_status, "compile_memory"), "compile_timeout", build_status)
    return pc.if_else(pc.is_in(build_status, pa.array(_BUILD_FAILURES)), build_status, "unsupported")


def _text(table: pa.Table, column: str) -> pa.Array:
    return table[column].cast(pa.string()).combine_chunks()


def _provenance(receipts: Sequence[Receipt], statuses: Mapping[str, int], arch: str, operation: str) -> dict[str, str]:
    def only(name: str) -> str:
        values = {getattr(receipt, name) for receipt in receipts}
        if len(values) != 1:
            raise UserError(f"{arch} {operation}: chunks differ in {name}: {sorted(values)}; run the benchmark again")
        return values.pop()

    differences = [value for receipt in receipts for value in receipt.differences]
    between = repeats.spread(differences)
    told = {"relative": round(between, 6), "pairs": len(differences), "source": MEASURED_AGAIN} if between else None
    return {
        "tileseer": json.dumps(
            {
                **({BETWEEN_RUNS: told} if told else {}),
                "schema_version": SCHEMA_VERSION,
                "arch": arch,
                "operation": operation,
                "device": only("device"),
                "device_kind": only("device_kind"),
                "measurement_id": only("measurement_id"),
                "rows_by_status": statuses,
            },
            sort_keys=True,
        )
    }
