"""Assembly of a dataset: what the journals of all chunks have of the pairs that were to be measured.

Malformed journal lines go to a quarantine file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.build import aliases
from tileseer.build.build import SCHEMA as BUILD
from tileseer.build.build import library_of
from tileseer.core import parquet
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.data.dataset_files import PAIRS, write_tables
from tileseer.data.provenance import BetweenRuns, Recording
from tileseer.measure import again, support_table
from tileseer.measure.journal import MALFORMED, pair_text, read_journal
from tileseer.measure.receipt import COUNTED_COLUMNS, Receipt, counted, digest_rows, summarize_rows

REPEATED = "pairs of the same jobs, drawn at random and measured again by another worker"
LATENCY_OF_KIND = {
    "simulated": "mean of the simulated device's launches",
    "measured": "median of the samples; of a pair that was measured again the mean of both workers' times",
}
"""What a time is, by kind of device."""


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
    folder: Path,
    stand_ins: pa.Table | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Write a dataset into ``folder``; return its pairs (``PAIRS``) and the journals' malformed lines.

    Problems are in the order of their keys, kernels of their names, pairs of problem, kernel and split-K. ``stand_ins``
    (``aliases.SCHEMA``) are the kernels that are not measured themselves.
    """
    stand_ins = aliases.SCHEMA.empty_table() if stand_ins is None else stand_ins
    receipts = [Receipt.read(chunk.receipt) for chunk in chunks]
    builds = [parquet.read_table(chunk.build, BUILD) for chunk in chunks]
    kernels = pa.concat_tables(build.select(BUILD.names) for build in builds).sort_by("kernel").combine_chunks()
    kernels = kernels.append_column("alias_of", aliases.alias_names(kernels["kernel"].combine_chunks(), stand_ins))
    problems = problems.sort_by("problem_key").combine_chunks()
    quarantine, measured = [MALFORMED.empty_table()], []
    for chunk, receipt in zip(chunks, receipts, strict=True):
        pairs = parquet.read_table(chunk.support, support_table.SCHEMA, bounded=False)
        pairs = pairs.filter(pc.and_(aliases.measured_mask(pairs, stand_ins), support_table.supported(pairs)))
        rows, malformed = _measured_rows(chunk, receipt, pairs)
        quarantine.append(malformed)
        measured.append((rows, pairs))
    problems = _without_those_beyond_the_budget(problems, measured)
    parts = [_numbered(rows, pairs, kernels, problems) for rows, pairs in measured]
    pairs = pa.concat_tables(parts).sort_by([(name, "ascending") for name in ("problem", "kernel", "split_k")])
    recording = _describe(receipts, arch, operation, max(map(library_of, builds), default=""))
    tables = {"problems": problems, "kernels": kernels.replace_schema_metadata(None), "pairs": pairs}
    write_tables(folder, recording, tables)
    return pairs, pa.concat_tables(quarantine)


def _measured_rows(chunk: ChunkFiles, receipt: Receipt, pairs: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the journal rows of a chunk, one a pair, with the mean of repeated times; and the malformed lines.

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
    if not receipt.again:
        return rows, malformed
    second_path = again.journal_again(path)
    second = again.counted(read_journal(second_path, receipt.measured_by)[0], rows)
    if digest_rows(second) != receipt.again_sha256:
        raise UserError(f"{second_path}: its rows are not those that {chunk.receipt} vouches for; {advice}")
    return again.combined(rows, second), malformed


def _without_those_beyond_the_budget(problems: pa.Table, measured: Sequence[tuple[pa.Table, pa.Table]]) -> pa.Table:
    """Return the problems without those of which pairs were to be measured and none was: nothing is known of them.

    ``measured`` are the rows of each chunk, and the pairs that were to be measured.
    """
    keys = problems["problem_key"].cast(pa.string())
    tried, wanted = (
        pc.is_in(keys, value_set=pa.concat_arrays([_text(part, "problem_key") for part in parts]))
        for parts in zip(*measured, strict=True)
    )
    return problems.filter(pc.or_(tried, pc.invert(wanted))).combine_chunks()


def _numbered(rows: pa.Table, pairs: pa.Table, kernels: pa.Table, problems: pa.Table) -> pa.Table:
    """Return the journal rows as ``PAIRS``; ``pairs`` are those of their support table."""
    rank = pa.nulls(rows.num_rows)
    if support_table.RANK.name in pairs.column_names:
        at = pc.index_in(pair_text(rows), value_set=pair_text(pairs).combine_chunks())
        rank = pairs[support_table.RANK.name].take(at)
    columns = {
        "problem": pc.index_in(_text(rows, "problem_key"), value_set=_text(problems, "problem_key")),
        "kernel": pc.index_in(_text(rows, "kernel_id"), value_set=_text(kernels, "kernel_id")),
        "reason": rows["error"],
        "median_us": pc.multiply(rows["latency_ms"], 1000.0),
        "cv": rows["latency_cv"],
        "rank": rank,
        **{name: rows[name] for name in ("split_k", "status", "samples", "non_zero", "sentinel")},
    }
    return pa.table({field.name: columns[field.name].cast(field.type) for field in PAIRS}, PAIRS).unify_dictionaries()


def _text(table: pa.Table, column: str) -> pa.Array:
    return table[column].cast(pa.string()).combine_chunks()


def _describe(receipts: Sequence[Receipt], arch: str, operation: str, library: str) -> Recording:
    def only(name: str) -> Any:
        values = {getattr(receipt, name) for receipt in receipts}
        if len(values) != 1:
            raise UserError(f"{arch} {operation}: chunks differ in {name}: {sorted(values)}; run the benchmark again")
        return values.pop()

    differences = [value for receipt in receipts for value in receipt.differences]
    relative = again.noise_between_runs(differences)
    between = BetweenRuns(relative=round(relative, 6), pairs=len(differences), source=REPEATED) if relative else None
    return Recording(
        arch=arch,
        device=only("device"),
        device_kind=only("device_kind"),
        measurement_id=only("measurement_id"),
        operations=[operation],
        library=library or None,
        latency=LATENCY_OF_KIND.get(only("device_kind"), ""),
        provenance={},
        between_runs={operation: between} if between else {},
    )
