"""The stage of verdicts: the kernels of a chunk are executed, and the tables of all chunks become one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tileseer.build import aliases, build, registration
from tileseer.build.modules import Libraries
from tileseer.core import bundle, parquet
from tileseer.core.progress import Progress
from tileseer.core.script import Settings
from tileseer.facts import hardware as products
from tileseer.facts.benchmark import BenchmarkSettings
from tileseer.libraries.registry import parse_kernels
from tileseer.measure.device import refuse_unless_emulated
from tileseer_emulated.kernels import Emulation, KernelVerdict

SCHEMA = parquet.schema(
    [
        ("kernel", pa.string()),
        ("status", pa.string()),
        ("right", pa.int32()),
        ("wrong", pa.int32()),
        ("instructions", pa.int64()),
        ("issue_cycles", pa.int64()),
        ("instances", pa.int32()),
        ("launched", pa.int32()),
        ("executed", pa.float64()),
        ("not_launched", pa.string()),
        ("not_executed", pa.string()),
        ("said", pa.string()),
        ("device_kind", pa.string()),
    ]
)
"""The fields of ``KernelVerdict``. An emulated GPU has no times."""
VERDICT_COLUMNS = ("status", "kernel", "same_code_as", *SCHEMA.names[2:])
"""Of the table of an arch."""
_NOT_EXECUTED = {"unsupported_by_ck": "unsupported", "pruned": "skipped", "resource_limit": "skipped"}
"""Verdict by the status of a build; any other one is ``compile_error``."""


def execute_chunk(
    arch: str, build_table: Path, headers: Path, driver: Path, module: Path, known_aliases: Path, hardware: Path,
    native: Path, settings: Settings,
) -> pa.Table:  # fmt: skip
    """Return the verdicts (``SCHEMA``) on the kernels of a chunk, without those that are aliases of another one."""
    refuse_unless_emulated(arch)
    rows = parquet.read_table(build_table, build.SCHEMA)
    rows = rows.filter(aliases.measured_mask(rows, aliases.read_aliases(known_aliases))).to_pylist()
    built = parse_kernels([row["kernel"] for row in rows if row["build_status"] == "ok"])
    units = {
        unit.kernel.name: unit for unit in build.compile_units(built, bundle.read_bundle(headers), arch, str(headers))
    }
    benchmark = BenchmarkSettings.of(settings, "benchmark")
    emulation = Emulation(
        Libraries(*registration.builder_parts(settings, arch, native)), products.product_of_arch(hardware, arch),
        benchmark.parameters.emulated_few,
    )  # fmt: skip
    verdicts = []
    with Progress("execute", len(rows), "kernels") as progress:
        for row in rows:
            if unit := units.get(row["kernel"]):
                verdict = emulation.verdict(unit, driver, module)
            else:
                status = _NOT_EXECUTED.get(row["build_status"], "compile_error")
                verdict = KernelVerdict(row["kernel"], status, said=row["build_reason"])
            verdicts.append(asdict(verdict))
            progress.add(failed=int(verdict.status not in ("ok", "unsupported")))
    return pa.Table.from_pylist(verdicts, SCHEMA)


def merge_chunks(chunks: Sequence[Path], known_aliases: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the rows (``VERDICT_COLUMNS``) of all kernels, by name; an alias has the verdict of its stand-in."""
    executed = {row["kernel"]: row for path in chunks for row in parquet.read_table(path, SCHEMA).to_pylist()}
    rows = {name: row | {"same_code_as": ""} for name, row in executed.items()}
    for path in known_aliases:
        for alias in aliases.read_aliases(path).to_pylist():
            other = alias["alias_of"]
            rows[alias["kernel"]] = executed[other] | {"kernel": alias["kernel"], "same_code_as": other}
    return [rows[name] for name in sorted(rows)]


def table_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the tab-separated text of rows, with a header."""
    yield "\t".join(VERDICT_COLUMNS)
    for row in rows:
        yield "\t".join(str(row[name]) for name in VERDICT_COLUMNS)


def count_verdicts(statuses: Sequence[str]) -> str:
    """Return how many kernels have each verdict, in words."""
    counts = Counter(statuses)
    right = counts.pop("ok", 0)
    others = ", ".join(f"{status.replace('_', ' ')} {count:,}" for status, count in counts.most_common())
    line = f"{right:,} of {len(statuses):,} kernels compute right results on an emulated GPU"
    return f"{line}; others: {others}" if others else line
