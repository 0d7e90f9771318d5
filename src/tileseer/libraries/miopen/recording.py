"""A recording of MIOpen's solvers, from a find-db."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tileseer.core import documents
from tileseer.core.atomic import building
from tileseer.core.errors import UserError
from tileseer.core.seal import file_digest
from tileseer.data.dataset_files import FILE
from tileseer.data.provenance import Recording, Taken
from tileseer.libraries.miopen.databases import Database
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DIMS, Problem

REFUSED = "refused.tsv"
LATENCY = "what MIOpen's find step measured, one time a solver; a database has four solvers of a problem at most"
PROBLEM_COLUMNS = pa.schema([(name, pa.int32()) for name in DIMS])
"""The rest of a problem follows from these, the operation, and a column ``layout`` if there are several layouts."""
LAYOUT = pa.field("layout", pa.string())
KERNEL_COLUMNS = pa.schema([("kernel", pa.string())])
PAIR_COLUMNS = pa.schema(
    [
        *((name, pa.int32()) for name in ("problem", "kernel", "split_k")),
        ("status", pa.dictionary(pa.int32(), pa.string())),
        ("samples", pa.int32()),
        *((name, pa.float32()) for name in ("median_us", "cv")),
    ]
)


def digests(paths: Sequence[Path]) -> str:
    """Return the names and SHA-256 of files, for the provenance."""
    return ", ".join(f"{path.name} ({file_digest(path)[:16]})" for path in paths)


def write_solver_recording(
    folder: Path,
    database: Database,
    arch: str,
    device: str,
    provenance: Mapping[str, str],
    taken: Taken | None = None,
) -> Recording:
    """Write a recording of ``arch`` (gfx942_miopen) into a new folder, whole or not at all.

    ``device``: product of config/hardware.yaml; ``provenance``: what the times depend on, in words.
    """
    if folder.exists():
        raise UserError(f"{folder}: exists already; name a new folder, or remove it first")
    of_operation: dict[str, dict[tuple[Problem, str], float]] = {}
    for (problem, solver), milliseconds in database.times.items():
        times = of_operation.setdefault(f"{problem.variant}_{problem.dtype}", {})
        times[problem, solver] = milliseconds
    recording = Recording(
        arch=arch,
        device=device,
        operations=sorted(of_operation),
        taken=taken,
        latency=LATENCY,
        provenance=dict(provenance),
    )
    with building(folder) as made:
        for operation, times in of_operation.items():
            _write_operation(made / operation, times, arch)
        if database.refused:
            lines = ["file\tline\treason\ttext", *("\t".join(map(str, one)) for one in database.refused)]
            (made / REFUSED).write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents.write_document(made / FILE, recording)
    return recording


def _write_operation(folder: Path, times: Mapping[tuple[Problem, str], float], arch: str) -> None:
    """Write the tables of one operation; the same times in any order give the same bytes."""
    kind = library_of_arch(arch).kernel
    solvers = {pair: kind(pair[0].variant, pair[0].dtype, pair[0].ndim, pair[1]).name for pair in times}
    names = sorted(set(solvers.values()))
    problems = sorted({problem for problem, _ in times}, key=lambda p: (*p.dims, p.layout))
    problem_of, kernel_of = ({key: i for i, key in enumerate(keys)} for keys in (problems, names))
    rows = pd.DataFrame(
        {
            "problem": [problem_of[problem] for problem, _ in times],
            "kernel": [kernel_of[solvers[pair]] for pair in times],
            "split_k": 1,
            "status": "ok",
            "samples": 1,
            "median_us": 1000 * np.fromiter(times.values(), np.float64),
            "cv": np.nan,  # how far times scatter is not known
        }
    ).sort_values(["problem", "kernel"])
    folder.mkdir()
    dims = {name: [getattr(problem, name) for problem in problems] for name in DIMS}
    listed = pa.table(dims, PROBLEM_COLUMNS)
    if any(problem.layout for problem in problems):
        listed = listed.append_column(LAYOUT, pa.array([problem.layout for problem in problems]))
    tables = {
        "problems": listed,
        "kernels": pa.table({"kernel": names}, KERNEL_COLUMNS),
        "pairs": pa.Table.from_pandas(rows, PAIR_COLUMNS, preserve_index=False).replace_schema_metadata(None),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd", compression_level=19)
