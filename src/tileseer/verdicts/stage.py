"""The stage of verdicts: the kernels of a chunk are executed, and the tables of all chunks become one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tileseer.compile import aliases, build, registry
from tileseer.compile.libraries import Libraries
from tileseer.core import bundle, parquet
from tileseer.core.progress import Progress
from tileseer.core.stage import Settings
from tileseer.devices import emulated
from tileseer.families.registry import parse
from tileseer.gpu import hardware as products
from tileseer.settings.benchmark import BenchmarkSettings
from tileseer.verdicts.execution import Verdict, verdict

SCHEMA = parquet.schema(
    [
        ("kernel", pa.string()),
        ("status", pa.string()),
        ("right", pa.int32()),
        ("wrong", pa.int32()),
        ("instructions", pa.int64()),
        ("issue_cycles", pa.int64()),
        ("said", pa.string()),
        ("device_kind", pa.string()),
    ]
)
"""The fields of ``Verdict``. An emulated GPU has no times."""
COLUMNS = ("status", "kernel", "same_code_as", *SCHEMA.names[2:])
"""Of the table of an arch."""
_NOT_EXECUTED = {"unsupported_by_ck": "unsupported", "pruned": "skipped", "resource_limit": "skipped"}
"""Verdict by the status of a build; any other one is ``compile_error``."""


def of_chunk(
    arch: str, build_table: Path, headers: Path, loaded: tuple[Path, Path], known: Path, hardware: Path, native: Path,
    settings: Settings,
) -> pa.Table:  # fmt: skip
    """Verdicts (``SCHEMA``) on the kernels of a chunk, without those that are aliases of another one."""
    emulated.refuse_without_decoder()
    rows = parquet.read(build_table, build.SCHEMA)
    rows = rows.filter(aliases.own(rows, aliases.read(known))).to_pylist()
    built = parse([row["kernel"] for row in rows if row["build_status"] == "ok"])
    units = {unit.kernel.name: unit for unit in build.units(built, bundle.read(headers), arch, str(headers))}
    libraries, gpu = Libraries(*registry.parts(settings, arch, native)), products.of_arch(hardware, arch)
    benchmark = BenchmarkSettings.of(settings, "benchmark")
    found = []
    with Progress("execute", len(rows), "kernels") as progress:
        for row in rows:
            if unit := units.get(row["kernel"]):
                most = benchmark.parameters.emulated_problems
                found.append(verdict(libraries, unit, loaded, gpu, most, benchmark.seed))
            else:
                status = _NOT_EXECUTED.get(row["build_status"], "compile_error")
                found.append(Verdict(row["kernel"], status, said=row["build_reason"]))
            progress.add(failed=int(found[-1].status not in ("ok", "unsupported")))
    return pa.Table.from_pylist([asdict(one) for one in found], SCHEMA)


def whole(chunks: Sequence[Path], known: Sequence[Path]) -> list[dict[str, Any]]:
    """Rows (``COLUMNS``) of all kernels, by name; an alias has the verdict of the kernel with the same machine code."""
    found = {row["kernel"]: row for path in chunks for row in parquet.read(path, SCHEMA).to_pylist()}
    rows = {name: row | {"same_code_as": ""} for name, row in found.items()}
    for path in known:
        for alias in aliases.read(path).to_pylist():
            other = alias["alias_of"]
            rows[alias["kernel"]] = found[other] | {"kernel": alias["kernel"], "same_code_as": other}
    return [rows[name] for name in sorted(rows)]


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Tab-separated text of rows, with a head."""
    yield "\t".join(COLUMNS)
    for row in rows:
        yield "\t".join(str(row[name]) for name in COLUMNS)


def told(statuses: Sequence[str]) -> str:
    """How many kernels have each verdict."""
    counts = Counter(statuses)
    listed = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    return f"{len(statuses):,} kernels on an emulated GPU: {listed or 'none'}"
