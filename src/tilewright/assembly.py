"""How the dataset is put together, from the journals, the build tables and the support tables of all chunks.

Pairs that the CPU already refused have the status ``unsupported``; every measured pair has the row of its journal.
Malformed journal lines go to a quarantine file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewright import aliases, chosen_pairs, parquet, support_table
from tilewright.bench import journal as journals
from tilewright.bench.receipt import Receipt, counted, digest, pair_text
from tilewright.dataset import BUILD, NAME, PROBLEM, SCHEMA, SCHEMA_VERSION
from tilewright.errors import UserError

_MEASURED = ("latency_ms", "tflops", "non_zero", "samples", "latency_cv")
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


def assemble(
    chunks: Sequence[Chunk],
    problems: pa.Table,
    arch: str,
    operation: str,
    chosen: pa.Table | None = None,
    known: pa.Table | None = None,
) -> tuple[pa.Table, list[Quarantined]]:
    """Return the dataset (``SCHEMA``, provenance in its metadata) and the malformed lines of all journals.

    With ``chosen`` (``chosen_pairs``), a supported pair that was not to be measured has no row. An alias (``known``,
    ``aliases.SCHEMA``) has the rows of the kernel that was measured in its stead.
    """
    known = aliases.SCHEMA.empty_table() if known is None else known
    lent = _lent(chunks, known)
    parts, quarantine, receipts = [], [], []
    for chunk in chunks:
        receipt = Receipt.read(chunk.receipt)
        receipts.append(receipt)
        measured, malformed = journals.read(Path(receipt.journal))
        quarantine += [Quarantined(receipt.journal, m.line, m.reason, m.text) for m in malformed]
        parts.append(_chunk_rows(chunk, receipt, measured, problems, chosen, known, lent))
    table = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    # The order of names in a dictionary would tell how the kernels were dealt to chunks.
    table = pa.table([_sorted_names(c) if c.type == NAME else c for c in table.columns], schema=SCHEMA)
    codes = (table[name].combine_chunks().indices.to_numpy() for name in ("kernel", "problem_key"))
    table = table.take(pa.array(np.lexsort((table["split_k"].to_numpy(), *codes))))
    return table.replace_schema_metadata(_provenance(receipts, table, arch, operation)), quarantine


def _lent(chunks: Sequence[Chunk], known: pa.Table) -> pa.Table:
    """Return the journal rows of the kernels that were measured in the stead of others, in whatever chunk they are."""
    found = [journals.SCHEMA.empty_table()]
    for chunk in chunks if known.num_rows else ():
        receipt = Receipt.read(chunk.receipt)
        rows = journals.read(Path(receipt.journal))[0]
        rows = rows.filter(pc.is_in(rows["kernel_id"], value_set=known["alias_of_id"].combine_chunks()))
        pairs = parquet.read(chunk.support)
        found.append(counted(rows, receipt.measurement_id, pairs.filter(support_table.supported(pairs))))
    return pa.concat_tables(found)


def _chunk_rows(
    chunk: Chunk, receipt: Receipt, measured: pa.Table, problems: pa.Table, chosen: pa.Table | None,
    known: pa.Table, lent: pa.Table,
) -> pa.Table:  # fmt: skip
    """Return one row (``SCHEMA``) for every pair of the support table of a chunk that was refused or measured."""
    pairs = parquet.read(chunk.support)
    wanted = chosen_pairs.wanted(aliases.as_measured(pairs, known), problems, chosen)
    left_out = pc.and_not(support_table.supported(pairs), wanted)
    pairs = pairs.filter(pc.invert(left_out))
    rule = _text(pairs, "rule")
    supported = support_table.supported(pairs)
    positions = np.flatnonzero(supported)
    results = _results(chunk, receipt, measured, pairs.filter(supported), positions, len(rule), known, lent)
    build = parquet.read(chunk.build)
    kernel = pc.index_in(_text(pairs, "kernel_id"), value_set=_text(build, "kernel_id"))
    problem = pc.index_in(_text(pairs, "problem_key"), value_set=_text(problems, "problem_key"))
    results = _without_wrong_kernels(results, build["kernel"].combine_chunks().take(kernel))
    built = {name: build[name].combine_chunks().take(kernel) for name in (*BUILD, "build_status", "build_reason")}
    refused_by = pc.if_else(pc.equal(rule, support_table.NOT_BUILT), built["build_reason"], rule)
    columns = {
        **{name: built[name] for name in BUILD},
        "alias_of": aliases.names(built["kernel"], known),
        **{name: problems[name].combine_chunks().take(problem) for name in PROBLEM},
        **{name: results[name] for name in _MEASURED},
        "split_k": pairs["split_k"].combine_chunks(),
        "status": pc.coalesce(results["status"], _status_of_refused(built["build_status"])),
        "reason": pc.coalesce(results["error"], refused_by),
    }
    return pa.table([_as(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


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


def _sorted_names(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return the same names over a dictionary in alphabetical order: codes then sort as the names do."""
    names = column.combine_chunks()
    order = pc.array_sort_indices(names.dictionary)
    code = np.empty(len(order), np.int32)
    code[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(code[names.indices.to_numpy()]), names.dictionary.take(order))


def _as(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values.dictionary_encode() if type_ == NAME and values.type == pa.string() else values.cast(type_)


def _provenance(receipts: Sequence[Receipt], table: pa.Table, arch: str, operation: str) -> dict[str, str]:
    def only(name: str) -> str:
        values = {getattr(receipt, name) for receipt in receipts}
        if len(values) != 1:
            raise UserError(f"{arch} {operation}: chunks differ in {name}: {sorted(values)}; run the benchmark again")
        return values.pop()

    counts = table["status"].combine_chunks().value_counts().to_pylist()
    return {
        "tilewright": json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "arch": arch,
                "operation": operation,
                "device": only("device"),
                "device_kind": only("device_kind"),
                "measurement_id": only("measurement_id"),
                "rows_by_status": {count["values"]: count["counts"] for count in counts},
            },
            sort_keys=True,
        )
    }
