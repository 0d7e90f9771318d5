"""How the dataset is put together, from the journals, the build tables and the support tables of all chunks.

Pairs that the CPU already refused have the status ``unsupported``; every measured pair has the row of its journal.
Malformed journal lines go to a quarantine file. Chunks are taken one at a time, and what they add waits in a file of
numbers until it is sorted (``dataset_rows``): the memory is that of the largest chunk, not of the dataset.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewright import aliases, chosen_pairs, parquet, support_table
from tilewright.atomic import naming
from tilewright.bench import journal as journals
from tilewright.bench.receipt import COUNTED, Receipt, counted, digest, pair_text
from tilewright.dataset import SCHEMA, SCHEMA_VERSION
from tilewright.dataset_rows import ROW_GROUP, Rows
from tilewright.errors import UserError

_MEASURED = ("latency_ms", "tflops", "non_zero", "samples", "latency_cv", "sentinel")
WRONG_ELSEWHERE = "the kernel computes a wrong result for another problem"
BEYOND_BUDGET = "beyond the budget"
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
) -> tuple[int, list[Quarantined]]:
    """Write the dataset (``SCHEMA``, provenance in its metadata); return its rows and the journals' malformed lines.

    With ``chosen`` (``chosen_pairs``), a supported pair that was not to be measured has no row. An alias (``known``,
    ``aliases.SCHEMA``) has the rows of the kernel that was measured in its stead.
    """
    known = aliases.SCHEMA.empty_table() if known is None else known
    lent = _lent(chunks, known)
    quarantine: list[Quarantined] = []
    receipts = []
    output.parent.mkdir(parents=True, exist_ok=True)
    with naming(output), tempfile.TemporaryFile(dir=output.parent) as file:
        rows = Rows(file, problems)
        for chunk in chunks:
            receipt = Receipt.read(chunk.receipt)
            receipts.append(receipt)
            measured, malformed = _measured(Path(receipt.journal))
            quarantine += malformed
            build = parquet.read(chunk.build)
            pairs = _pairs(chunk, receipt, measured, build, problems, chosen, known, lent)
            alias_of = aliases.names(build["kernel"].combine_chunks(), known)
            rows.add(build.append_column("alias_of", alias_of), pairs)
        schema = SCHEMA.with_metadata(_provenance(receipts, rows.statuses, arch, operation))
        with parquet.writing(output, schema) as writer:
            for group in rows.groups():
                writer.write_table(group.cast(schema), row_group_size=ROW_GROUP)
    return rows.length, quarantine


def _lent(chunks: Sequence[Chunk], known: pa.Table) -> pa.Table:
    """Return the journal rows of the kernels that were measured in the stead of others, in whatever chunk they are."""
    found = [_rows_that_count([])]
    for chunk in chunks if known.num_rows else ():
        receipt = Receipt.read(chunk.receipt)
        rows = _measured(Path(receipt.journal))[0]
        rows = rows.filter(pc.is_in(rows["kernel_id"], value_set=known["alias_of_id"].combine_chunks()))
        pairs = parquet.read(chunk.support)
        found.append(counted(rows, receipt.measurement_id, pairs.filter(support_table.supported(pairs))))
    return pa.concat_tables(found)


def _measured(journal: Path) -> tuple[pa.Table, list[Quarantined]]:
    """Return what counts of a journal's rows, and its malformed lines."""
    parts, quarantine = [], []
    for rows, malformed in journals.batches(journal):
        parts.append(_rows_that_count([rows]))
        quarantine += [Quarantined(journal.as_posix(), m.line, m.reason, m.text) for m in malformed]
    return pa.concat_tables([_rows_that_count([]), *parts]), quarantine


def _rows_that_count(parts: Sequence[pa.Table]) -> pa.Table:
    """Return journal rows with the columns that decide what the dataset says."""
    columns = [*COUNTED, "sentinel", "measurement_id"]
    return pa.concat_tables([part.select(columns) for part in (journals.SCHEMA.empty_table(), *parts)])


def _pairs(
    chunk: Chunk,
    receipt: Receipt,
    measured: pa.Table,
    build: pa.Table,
    problems: pa.Table,
    chosen: pa.Table | None,
    known: pa.Table,
    lent: pa.Table,
) -> dict[str, pa.Array]:
    """Return what ``Rows.add`` takes, for every pair of a chunk's support table that was refused or measured."""
    pairs = parquet.read(chunk.support)
    wanted = chosen_pairs.wanted(aliases.as_measured(pairs, known), problems, chosen)
    left_out = pc.and_not(support_table.supported(pairs), wanted)
    pairs = pairs.filter(pc.invert(left_out))
    rule = _text(pairs, "rule")
    supported = support_table.supported(pairs)
    positions = np.flatnonzero(supported)
    results = _results(chunk, receipt, measured, pairs.filter(supported), positions, len(rule), known, lent)
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
    chunk: Chunk, receipt: Receipt, measured: pa.Table, wanted: pa.Table, position: np.ndarray, length: int,
    known: pa.Table, lent: pa.Table,
) -> dict[str, pa.Array]:  # fmt: skip
    """Return what was measured, at the positions of the measured pairs among all; nulls elsewhere."""
    rows = counted(measured, receipt.measurement_id, wanted.filter(aliases.own(wanted, known)))
    if rows.num_rows != receipt.pairs or digest(rows) != receipt.rows_sha256:
        raise UserError(
            f"{receipt.journal}: {rows.num_rows} of the {receipt.pairs} pairs that {chunk.receipt} vouches for are "
            "there, or their times were changed; delete the receipt and run again to measure what is missing"
        )
    rows = pa.concat_tables([rows, lent])
    found = pc.index_in(pair_text(aliases.as_measured(wanted, known)), value_set=pair_text(rows).combine_chunks())
    index = np.full(length, -1, np.int64)
    index[position] = pc.fill_null(found, _SKIPPED).to_numpy()
    take = pa.array(index, mask=index < 0)
    results = {name: rows[name].combine_chunks().take(take) for name in (*_MEASURED, "status", "error")}
    skipped = pa.array(index == _SKIPPED)
    # A zero says that no sample was taken, a null that the pair was never to be sent to the device.
    told = {"status": "skipped", "error": BEYOND_BUDGET, "samples": pa.scalar(0, rows["samples"].type)}
    return results | {name: pc.if_else(skipped, value, results[name]) for name, value in told.items()}


def _without_wrong_kernels(results: dict[str, pa.Array], kernel: pa.Array) -> dict[str, pa.Array]:
    """Return the results with every time of a kernel removed that computed a wrong result anywhere.

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

    return {
        "tilewright": json.dumps(
            {
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
