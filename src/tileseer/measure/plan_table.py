"""The plans stage, for kernels that a library offers: ask it which plans it has for each problem.

In the place of enumeration, compilation and support it writes a chunk's build table, whose metadata name the library
and its version, and its support table, with the place of each plan in the library's own order.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa

from tileseer.build.build import LIBRARY_METADATA_KEY as LIBRARY_FIELD
from tileseer.build.build import SCHEMA as BUILD
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.libraries.grammar import SPELLED
from tileseer.libraries.kernel_table import chunk_of
from tileseer.libraries.library import Library
from tileseer.libraries.registry import library_of_arch
from tileseer.measure import support_table
from tileseer.measure.gpu_device import GpuDevice
from tileseer.measure.harness.supervisor import problem_numbers
from tileseer.measure.session import Session
from tileseer.problems import problem_table


def write_plans(session: Session, problems: Path, chunk: int, chunks: int, build: Path, support: Path) -> str:
    """Write build and support table of one of ``chunks`` chunks; the message about it."""
    table = parquet.read_table(problems, problem_table.SCHEMA).to_pandas()
    own = library_of_arch(session.arch)
    backend, configuration = own.measured_with or ("", "")
    if session.settings.device != backend:
        raise UserError(
            f"benchmark.device is {session.settings.device}: the plans of {session.arch} come from a GPU; "
            f"add --configfile {configuration}, or give a recording of them under replays"
        )
    with replace(session, plans=own.name, journal=None).hold_device() as (device, _):
        assert isinstance(device, GpuDevice)
        library = device.plans
        offered, refused = _offered(device, own, table)
    offered = offered[[chunk_of(name, chunks) == chunk for name in offered["kernel"]]]
    kernels = sorted(set(offered["kernel"]))
    if not kernels and chunks == 1:
        raise UserError(f"{library} offers no plan for any of {len(table)} problems: {refused[:1] or 'no problems'}")
    # With another version of the library, a plan is another kernel.
    texts = {name: f"{name}\n{session.arch}\n{library}" for name in kernels}
    ids = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}
    parquet.write_table(_build_table(ids, library), build)
    parquet.write_table(_support_table(offered, ids), support)
    left_out = f"; no plans for {len(refused)} problems, such as {refused[0]}" if refused else ""
    counts = f"{len(offered):,} pairs of {len(kernels):,} plans for {len(table):,} problems"
    return f"{library} offers {counts}{left_out}"


def _offered(device: GpuDevice, own: Library, problems: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of ``kernel``, ``problem_key`` and ``rank``, and the reasons of problems without a plan.

    A plan whose name cannot be read, such as one of a new engine, is left out.
    """
    rows: list[tuple[str, str, int]] = []
    refused: list[str] = []
    with Progress("plans", len(problems), "problems") as progress:
        for problem in problems.to_dict("records"):
            direction = SPELLED.get(problem["variant"], problem["variant"])
            prefix = f"{own.prefix}{direction}_{problem['dtype']}_{problem['ndim']}d_"
            numbers = problem_numbers(problem, problem["variant"], split_k=1)
            names, reason = device.supervisor.offered(numbers, problem["dtype"], problem["ndim"])
            rows += [(prefix + name, problem["problem_key"], rank) for rank, name in enumerate(names)]
            if not names:
                refused.append(f"{problem['problem_key']} ({reason})")
            progress.add(failed=int(not names))
    # The library's lists overlap: a plan has its first place.
    offered = pd.DataFrame(rows, columns=["kernel", "problem_key", "rank"]).drop_duplicates(["kernel", "problem_key"])
    unknown = sorted(name for name in offered["kernel"].unique() if not _can_parse(own, name))
    if unknown:
        print(f"left out {len(unknown)} plans whose names {own.name} kernels do not have, such as {unknown[0]}")
    return offered[~offered["kernel"].isin(unknown)], refused


def _can_parse(own: Library, name: str) -> bool:
    try:
        own.kernel.parse(name)
    except UserError:
        return False
    return True


def _build_table(ids: dict[str, str], library: str) -> pa.Table:
    built = {"build_status": "ok", "build_reason": "", "error_digest": "", "code_hash": "", "resources_from": "unknown"}
    rows = [{"kernel": name, "kernel_id": kernel_id, "split_k": [1], **built} for name, kernel_id in ids.items()]
    return pa.Table.from_pylist(rows, BUILD).replace_schema_metadata({LIBRARY_FIELD: library})


def _support_table(offered: pd.DataFrame, ids: dict[str, str]) -> pa.Table:
    rows = offered.sort_values(["problem_key", "kernel"], ignore_index=True)
    rows = rows.assign(kernel_id=rows["kernel"].map(ids), split_k=1, rule=support_table.SUPPORTED)
    schema = support_table.SCHEMA.append(support_table.RANK)
    return pa.table({field.name: pa.array(rows[field.name], field.type) for field in schema}, schema=schema)
