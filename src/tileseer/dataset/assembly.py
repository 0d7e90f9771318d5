"""Assembly of a dataset: the support tables of all chunks, joined with what their journals have of each pair.

A pair that was refused without a device is ``unsupported``; every measured pair has the row of its journal. Malformed
journal lines go to a quarantine file. Kernels and problems are numbers until the rows are written, a row group at a
time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.compile import aliases
from tileseer.compile.build import SCHEMA as BUILD_SCHEMA
from tileseer.compile.build import library_of
from tileseer.core import parquet
from tileseer.core.atomic import naming, write_text
from tileseer.core.errors import UserError
from tileseer.dataset.provenance import BetweenRuns, DatasetProvenance
from tileseer.dataset.schema import BUILD, PROBLEM, SCHEMA, typed
from tileseer.measure import repeats, support_table
from tileseer.measure.device import DEVICE_KINDS, NO_TIMES
from tileseer.measure.journal import MALFORMED, read_journal
from tileseer.measure.receipt import COUNTED_COLUMNS, Receipt, counted, digest_rows, summarize_rows

WRONG_ELSEWHERE = "the kernel computes a wrong result for another problem"
BEYOND_BUDGET = "beyond the budget"
REPEATED = "pairs of the same jobs, drawn at random and measured again by another worker"
ROW_GROUP = 1 << 20
"""Rows of a row group of the dataset."""
_MEASURED = ("latency_ms", "tflops", "non_zero", "samples", "latency_cv", "sentinel")
_PAIR = ["measured_kernel", "split_k", "problem"]


@dataclass(frozen=True)
class ChunkFiles:
    """The files of one chunk: its build table, its support table and its benchmark receipt."""

    build: Path
    support: Path
    receipt: Path


def write_quarantine(path: Path, lines: pa.Table) -> None:
    """Write the lines as tab-separated text."""
    rows = pc.binary_join_element_wise(*(lines[name].cast(pa.string()) for name in lines.column_names), "\t")
    write_text(path, "".join(f"{row}\n" for row in ["\t".join(lines.column_names), *rows.to_pylist()]))


def write_dataset(
    chunks: Sequence[ChunkFiles],
    problems: pa.Table,
    arch: str,
    operation: str,
    output: Path,
    stand_ins: pa.Table | None = None,
) -> tuple[int, pa.Table]:
    """Write the dataset (``SCHEMA``, provenance in its metadata); return its rows and the journals' malformed lines.

    An alias has the rows of the kernel that was measured for it (``stand_ins``, ``aliases.SCHEMA``).
    """
    stand_ins = aliases.SCHEMA.empty_table() if stand_ins is None else stand_ins
    receipts = [Receipt.read(chunk.receipt) for chunk in chunks]
    builds = [parquet.read_table(chunk.build, BUILD_SCHEMA) for chunk in chunks]
    kernels = pa.concat_tables(build.select(BUILD_SCHEMA.names) for build in builds)
    kernels = kernels.append_column("alias_of", aliases.alias_names(kernels["kernel"].combine_chunks(), stand_ins))
    by_key = problems.sort_by("problem_key").select(PROBLEM).combine_chunks()
    quarantine, pairs, measured = [MALFORMED.empty_table()], [], []
    for chunk, receipt in zip(chunks, receipts, strict=True):
        support = parquet.read_table(chunk.support, support_table.SCHEMA)
        own = support.filter(aliases.measured_mask(support, stand_ins))
        own = own.filter(support_table.supported(own))
        rows, malformed = _measured_rows(chunk, receipt, own)
        quarantine.append(malformed)
        measured.append(_numbered(rows, kernels, by_key).rename_columns({"kernel": "measured_kernel"}))
        pairs.append(_pairs(support, kernels, by_key, stand_ins))
    rows = _joined(pa.concat_tables(pairs), pa.concat_tables(measured), kernels)
    statuses = Counter(rows["status"].to_pylist())
    library = max(map(library_of, builds), default="")
    provenance = _provenance(receipts, statuses, arch, operation, library)
    schema = SCHEMA.with_metadata(provenance.metadata())
    output.parent.mkdir(parents=True, exist_ok=True)
    with naming(output), parquet.table_writer(output, schema) as writer:
        for group in _row_groups(rows, kernels, by_key):
            writer.write_table(group.cast(schema), row_group_size=ROW_GROUP)
    return rows.num_rows, pa.concat_tables(quarantine)


def _measured_rows(chunk: ChunkFiles, receipt: Receipt, pairs: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Journal rows of the pairs of a chunk, one a pair, with the mean of repeated times; and the malformed lines.

    ``UserError`` unless they are those of the receipt.
    """
    path, advice = Path(receipt.journal), "delete the receipt and run again to measure what is missing"
    mine, malformed = read_journal(path, receipt.measured_by, (*COUNTED_COLUMNS, "sentinel"))
    rows = counted(mine, pairs)
    if any(value != getattr(receipt, name) for name, value in summarize_rows(rows).items()):
        raise UserError(
            f"{path}: {rows.num_rows} of the {receipt.pairs} pairs that {chunk.receipt} "
            f"records are in the journal, or their times were changed; {advice}"
        )
    if not receipt.repeats:
        return rows, malformed
    second_path = repeats.repeats_journal(path)
    second = repeats.counted(read_journal(second_path, receipt.measured_by)[0], rows)
    if digest_rows(second) != receipt.repeats_sha256:
        raise UserError(f"{second_path}: its rows are not those that {chunk.receipt} vouches for; {advice}")
    return repeats.combined(rows, second), malformed


def _numbered(rows: pa.Table, kernels: pa.Table, problems: pa.Table) -> pa.Table:
    """Rows with ``kernel`` and ``problem``, row numbers of these tables, for ``kernel_id`` and ``problem_key``."""
    numbers = {
        "kernel": pc.index_in(_text(rows, "kernel_id"), value_set=_text(kernels, "kernel_id")),
        "problem": pc.index_in(_text(rows, "problem_key"), value_set=_text(problems, "problem_key")),
        "split_k": rows["split_k"].cast(pa.int32()),
    }
    rest = rows.drop_columns(["kernel_id", "problem_key", "split_k"])
    return pa.table({**numbers, **dict(zip(rest.column_names, rest.columns, strict=True))})


def _pairs(support: pa.Table, kernels: pa.Table, by_key: pa.Table, stand_ins: pa.Table) -> pa.Table:
    """The pairs of a support table, with the kernel that is measured for each."""
    as_measured = aliases.as_measured(support, stand_ins)
    measured_kernel = _numbered(as_measured, kernels, by_key)["kernel"]
    pairs = _numbered(support, kernels, by_key).append_column("measured_kernel", measured_kernel)
    pairs = pairs.set_column(pairs.schema.get_field_index("rule"), "rule", pairs["rule"].cast(pa.string()))
    if support_table.RANK.name not in pairs.column_names:
        pairs = pairs.append_column(support_table.RANK, pa.nulls(pairs.num_rows, support_table.RANK.type))
    return pairs.append_column("supported", support_table.supported(support))


def _joined(pairs: pa.Table, measured: pa.Table, kernels: pa.Table) -> pa.Table:
    """Rows of the dataset as numbers: each pair with its measurement, by problem, kernel and split-K."""
    rows = pairs.join(measured, _PAIR).combine_chunks()
    # No samples: the device was to measure the pair and did not. Null: it was never to measure it.
    skipped = pc.and_(rows["supported"], pc.is_null(rows["status"]))
    rows = _replaced(rows, skipped, {"status": "skipped", "error": BEYOND_BUDGET, "samples": 0})
    rows = _without_wrong_kernels(rows)
    build_status, build_reason = (kernels[name].take(rows["kernel"]) for name in ("build_status", "build_reason"))
    refused = pc.if_else(pc.equal(rows["rule"], support_table.NOT_BUILT), build_reason, rows["rule"])
    rows = rows.append_column("reason", pc.coalesce(rows["error"], refused))
    rows = rows.set_column(
        rows.schema.get_field_index("status"), "status", pc.coalesce(rows["status"], _status_of_refused(build_status))
    )
    rows = rows.append_column("name", pc.rank(kernels["kernel"], tiebreaker="dense").take(rows["kernel"]))
    return rows.sort_by([(column, "ascending") for column in ("problem", "name", "split_k")])


def _without_wrong_kernels(rows: pa.Table) -> pa.Table:
    """``rows`` without the times of a kernel that computed a wrong result anywhere: it must not be chosen.

    Its other pairs were perhaps not compared with a reference.
    """
    wrong = pc.unique(rows["kernel"].filter(pc.equal(rows["status"], "wrong_result")))
    barred = pc.and_(pc.is_in(rows["kernel"], wrong), pc.equal(rows["status"], "ok"))
    values = {"status": "wrong_result", "error": WRONG_ELSEWHERE, "latency_ms": None, "tflops": None}
    return _replaced(rows, pc.fill_null(barred, False), values)


def _replaced(rows: pa.Table, mask: pa.ChunkedArray, values: Mapping[str, object]) -> pa.Table:
    """Rows with ``values`` in some columns where the mask is true."""
    for name, value in values.items():
        column = pc.if_else(mask, pa.scalar(value, rows[name].type), rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def _status_of_refused(build_status: pa.ChunkedArray) -> pa.ChunkedArray:
    """The failure of its build, or ``unsupported``."""
    # Both are limits of this machine, not of the kernel.
    build_status = pc.if_else(pc.equal(build_status, "compile_memory"), "compile_timeout", build_status)
    failed = pc.is_in(build_status, pa.array(["compile_error", "compile_timeout"]))
    return pc.if_else(failed, build_status, "unsupported")


def _row_groups(rows: pa.Table, kernels: pa.Table, problems: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in the columns of ``SCHEMA``, a row group at a time, at least once."""
    words = typed(rows.select(["status", "reason"]))
    sources = [
        (typed(kernels.select([*BUILD, "alias_of"]), rows["kernel"]), "kernel"),
        (typed(problems, rows["problem"]), "problem"),
    ]
    for start in range(0, max(1, rows.num_rows), ROW_GROUP):
        group = rows.slice(start, ROW_GROUP)
        columns = {name: group[name] for name in ("split_k", "rank", *_MEASURED)}
        columns |= {name: words[name].slice(start, ROW_GROUP) for name in words.column_names}
        for source, number in sources:
            taken = source.take(group[number])
            columns |= dict(zip(taken.column_names, taken.columns, strict=True))
        yield pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _text(table: pa.Table, column: str) -> pa.Array:
    return table[column].cast(pa.string()).combine_chunks()


def _provenance(
    receipts: Sequence[Receipt], statuses: Mapping[str, int], arch: str, operation: str, library: str = ""
) -> DatasetProvenance:
    def only(name: str) -> Any:
        values = {getattr(receipt, name) for receipt in receipts}
        if len(values) != 1:
            raise UserError(f"{arch} {operation}: chunks differ in {name}: {sorted(values)}; run the benchmark again")
        return values.pop()

    if only("device_kind") not in DEVICE_KINDS:
        raise UserError(f"{arch} {operation}: the receipts are of kind {only('device_kind')}: {NO_TIMES}")
    differences = [value for receipt in receipts for value in receipt.differences]
    relative = repeats.noise_between_runs(differences)
    return DatasetProvenance(
        arch=arch,
        operation=operation,
        device=only("device"),
        device_kind=only("device_kind"),
        measurement_id=only("measurement_id"),
        rows_by_status=dict(statuses),
        library=library or None,
        between_runs=BetweenRuns(relative=round(relative, 6), pairs=len(differences), source=REPEATED)
        if relative
        else None,
    )
