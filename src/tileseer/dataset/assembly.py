"""Assembly of a dataset from the journals, the build tables and the support tables of all chunks.

A pair that was refused without a device is ``unsupported``; every measured pair has the row of its journal. Malformed
journal lines go to a quarantine file. Chunks are taken one at a time, a large one in parts (``chunk_parts``), and
their rows wait in a file of numbers until they are sorted (``dataset_rows``): a setting bounds the memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark import chosen_pairs, chunk_parts, repeats
from tileseer.benchmark import journal as journals
from tileseer.benchmark.pairs import pair_text
from tileseer.benchmark.receipt import COUNTED, Account, Receipt, counted, digest
from tileseer.compile import aliases
from tileseer.compile.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.core.atomic import naming, write_text
from tileseer.core.errors import UserError
from tileseer.dataset.dataset_rows import ROW_GROUP, Rows
from tileseer.dataset.provenance import BetweenRuns, DatasetProvenance
from tileseer.dataset.schema import SCHEMA
from tileseer.devices.base import DEVICE_KINDS, NO_TIMES
from tileseer.support import support_table

WRONG_ELSEWHERE = "the kernel computes a wrong result for another problem"
BEYOND_BUDGET = "beyond the budget"
REPEATED = "pairs of the same jobs, drawn at random and measured again by another worker"
_MEASURED = ("latency_ms", "tflops", "non_zero", "samples", "latency_cv", "sentinel")
_COLUMNS = (*COUNTED, "sentinel")
_SKIPPED = -2


@dataclass(frozen=True)
class Chunk:
    """The files of one chunk: its build table, its support table and its benchmark receipt."""

    build: Path
    support: Path
    receipt: Path


def write_quarantine(path: Path, lines: pa.Table) -> None:
    """Write the lines as tab-separated text."""
    rows = pc.binary_join_element_wise(*(lines[name].cast(pa.string()) for name in lines.column_names), "\t")
    write_text(path, "".join(f"{row}\n" for row in ["\t".join(lines.column_names), *rows.to_pylist()]))


def write(
    chunks: Sequence[Chunk],
    problems: pa.Table,
    arch: str,
    operation: str,
    output: Path,
    chosen: pa.Table | None = None,
    known: pa.Table | None = None,
    memory_mib: int = 1024,
) -> tuple[int, pa.Table]:
    """Write the dataset (``SCHEMA``, provenance in its metadata); return its rows and the journals' malformed lines.

    With ``chosen`` (``chosen_pairs``), a supported pair that was not to be measured has no row. An alias (``known``,
    ``aliases.SCHEMA``) has the rows of the kernel that was measured for it. The bytes do not depend on
    ``memory_mib``.
    """
    known = aliases.SCHEMA.empty_table() if known is None else known
    vouched = [_Vouched(chunk) for chunk in chunks]
    wanted = _Wanted(problems, chosen, known, _lent(vouched, known))
    most_pairs = chunk_parts.pairs_at_once(memory_mib)
    quarantine = [journals.MALFORMED.empty_table()]
    output.parent.mkdir(parents=True, exist_ok=True)
    with naming(output):
        rows = Rows(output.parent, problems)
        for one in vouched:
            build = parquet.read(one.chunk.build, BUILD)
            named = build.append_column("alias_of", aliases.names(build["kernel"].combine_chunks(), known))
            support = parquet.read(one.chunk.support, support_table.SCHEMA)
            for pairs, measured in chunk_parts.parts(support, one.journal(quarantine), most_pairs, output.parent):
                rows.add(named, _pairs(pairs, measured, build, wanted, one))
            one.check()
        told = _provenance([one.receipt for one in vouched], rows.statuses, arch, operation)
        schema = SCHEMA.with_metadata(told.metadata())
        with parquet.writing(output, schema) as writer:
            for group in rows.groups():
                writer.write_table(group.cast(schema), row_group_size=ROW_GROUP)
                # Before the next one is made: two do not fit into the memory.
                del group
    return rows.length, pa.concat_tables(quarantine)


class _Vouched:
    """A chunk, and what its receipt vouches for, compared with the rows of its parts."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.receipt = Receipt.read(chunk.receipt)
        self._account = Account()
        self._repeats: list[pa.Table] = []

    def journal(self, quarantine: list[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of the journal in at least one table; malformed lines are added to ``quarantine``."""
        return journals.of_device(Path(self.receipt.journal), self.receipt.measured_by, _COLUMNS, quarantine)

    def repeated(self, rows: pa.Table) -> pa.Table:
        """Repeat measurements of ``rows``."""
        if not self.receipt.repeats:
            return repeats.NOTHING
        second = journals.read(repeats.journal_of(Path(self.receipt.journal)))[0]
        return repeats.counted(second, self.receipt.measured_by, rows)

    def add(self, rows: pa.Table) -> pa.Table:
        """Count the rows of a part; return them with the mean of both times where they were repeated."""
        self._account.add(rows)
        self._repeats.append(self.repeated(rows))
        return repeats.combined(rows, self._repeats[-1])

    def check(self) -> None:
        """Raise a ``UserError`` unless the rows are those of the receipt."""
        receipt, advice = self.receipt, "delete the receipt and run again to measure what is missing"
        found = self._account.fields()
        if any(value != getattr(receipt, name) for name, value in found.items()):
            raise UserError(
                f"{receipt.journal}: {self._account.pairs} of the {receipt.pairs} pairs that {self.chunk.receipt} "
                f"vouches for are there, or their times were changed; {advice}"
            )
        if receipt.repeats and digest(pa.concat_tables(self._repeats)) != receipt.repeats_sha256:
            second = repeats.journal_of(Path(receipt.journal))
            raise UserError(f"{second}: its rows are not those that {self.chunk.receipt} vouches for; {advice}")


def _lent(chunks: Sequence[_Vouched], known: pa.Table) -> pa.Table:
    """Journal rows of the kernels that were measured for their aliases, in whatever chunk they are."""
    found = [journals.SCHEMA.empty_table().select(_COLUMNS)]
    for one in chunks if known.num_rows else ():
        rows = pa.concat_tables(one.journal([]))
        rows = rows.filter(pc.is_in(rows["kernel_id"], value_set=known["alias_of_id"].combine_chunks()))
        pairs = parquet.read(one.chunk.support, support_table.SCHEMA)
        rows = counted(rows, pairs.filter(support_table.supported(pairs)))
        found.append(repeats.combined(rows, one.repeated(rows)))
    return pa.concat_tables(found)


@dataclass(frozen=True)
class _Wanted:
    """Which pairs were to be measured, and under which name."""

    problems: pa.Table
    chosen: pa.Table | None
    known: pa.Table
    lent: pa.Table


def _pairs(
    pairs: pa.Table, measured: pa.Table, build: pa.Table, wanted: _Wanted, vouched: _Vouched
) -> dict[str, pa.Array]:
    """Arguments of ``Rows.add``, for every pair of a part that was refused or measured."""
    supported = support_table.supported(pairs)
    to_measure = chosen_pairs.wanted(aliases.as_measured(pairs, wanted.known), wanted.problems, wanted.chosen)
    pairs = pairs.filter(pc.invert(pc.and_not(supported, to_measure)))
    results = _results(measured, pairs, wanted, vouched)
    kernel = pc.index_in(_text(pairs, "kernel_id"), value_set=_text(build, "kernel_id"))
    name, status, reason = (
        build[column].combine_chunks().take(kernel) for column in ("kernel", "build_status", "build_reason")
    )
    results = _without_wrong_kernels(results, name)
    rule = _text(pairs, "rule")
    return {
        **{column: results[column] for column in _MEASURED},
        "problem_key": _text(pairs, "problem_key"),
        "build": kernel,
        "split_k": pairs["split_k"].combine_chunks(),
        "status": pc.coalesce(results["status"], _status_of_refused(status)),
        "reason": pc.coalesce(results["error"], pc.if_else(pc.equal(rule, support_table.NOT_BUILT), reason, rule)),
    }


def _results(measured: pa.Table, pairs: pa.Table, wanted: _Wanted, vouched: _Vouched) -> dict[str, pa.Array]:
    """Measured columns of each of ``pairs``; nulls for those that are not supported."""
    supported = support_table.supported(pairs)
    sent = pairs.filter(supported)
    rows = counted(measured, sent.filter(aliases.own(sent, wanted.known)))
    rows = pa.concat_tables([vouched.add(rows), wanted.lent])
    found = pc.index_in(pair_text(aliases.as_measured(sent, wanted.known)), value_set=pair_text(rows).combine_chunks())
    index = np.full(pairs.num_rows, -1, np.int64)
    index[np.flatnonzero(supported)] = pc.fill_null(found, _SKIPPED).to_numpy()
    take = pa.array(index, mask=index < 0)
    results = {name: rows[name].combine_chunks().take(take) for name in (*_MEASURED, "status", "error")}
    # No samples: the device was to measure the pair and did not. Null: it was never to measure it.
    skipped = {"status": "skipped", "error": BEYOND_BUDGET, "samples": 0}
    return results | _replaced(results, pa.array(index == _SKIPPED), skipped)


def _without_wrong_kernels(results: dict[str, pa.Array], kernel: pa.Array) -> dict[str, pa.Array]:
    """``results`` without the times of a kernel that computed a wrong result anywhere: it must not be chosen.

    Its other pairs were perhaps not compared with a reference.
    """
    wrong = pc.unique(kernel.filter(pc.fill_null(pc.equal(results["status"], "wrong_result"), False)))
    barred = pc.and_(pc.is_in(kernel, wrong), pc.fill_null(pc.equal(results["status"], "ok"), False))
    told = {"status": "wrong_result", "error": WRONG_ELSEWHERE, "latency_ms": None, "tflops": None}
    return results | _replaced(results, barred, told)


def _replaced(columns: dict[str, pa.Array], rows: pa.Array, values: Mapping[str, object]) -> dict[str, pa.Array]:
    """Some of the columns, with ``values`` in some of their rows."""
    return {name: pc.if_else(rows, pa.scalar(v, columns[name].type), columns[name]) for name, v in values.items()}


def _status_of_refused(build_status: pa.Array) -> pa.Array:
    """The failure of its build, or ``unsupported``."""
    # Both are limits of this machine, not of the kernel.
    build_status = pc.if_else(pc.equal(build_status, "compile_memory"), "compile_timeout", build_status)
    failed = pc.is_in(build_status, pa.array(["compile_error", "compile_timeout"]))
    return pc.if_else(failed, build_status, "unsupported")


def _text(table: pa.Table, column: str) -> pa.Array:
    return table[column].cast(pa.string()).combine_chunks()


def _provenance(
    receipts: Sequence[Receipt], statuses: Mapping[str, int], arch: str, operation: str
) -> DatasetProvenance:
    def only(name: str) -> Any:
        values = {getattr(receipt, name) for receipt in receipts}
        if len(values) != 1:
            raise UserError(f"{arch} {operation}: chunks differ in {name}: {sorted(values)}; run the benchmark again")
        return values.pop()

    if only("device_kind") not in DEVICE_KINDS:
        raise UserError(f"{arch} {operation}: the receipts are of kind {only('device_kind')}: {NO_TIMES}")
    differences = [value for receipt in receipts for value in receipt.differences]
    relative = repeats.spread(differences)
    return DatasetProvenance(
        arch=arch,
        operation=operation,
        device=only("device"),
        device_kind=only("device_kind"),
        measurement_id=only("measurement_id"),
        rows_by_status=dict(statuses),
        between_runs=BetweenRuns(relative=round(relative, 6), pairs=len(differences), source=REPEATED)
        if relative
        else None,
    )
