"""Progress of a workflow, read from the files of ``results/``.

It shows what exists, not what is out of date: only ``snakemake -n`` knows that.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark.receipt import Receipt
from tileseer.compile import aliases
from tileseer.configs import plan
from tileseer.core import documents, parquet
from tileseer.model import model_files
from tileseer.support import support_table
from tileseer.validation.schema import Validation

CHUNKED = {
    "headers": "headers/{arch}/{operation}/{chunk}.tar",
    "compile": "build/{arch}/{operation}/{chunk}.parquet",
    "libraries": "libraries/{arch}/{operation}/{chunk}.so",
    "support": "support/{arch}/{operation}/{chunk}.parquet",
    "benchmark": "benchmark/{arch}/{operation}/{chunk}.json",
}
"""Stages that have a file a chunk, below the results folder. Libraries are for a real GPU alone."""
WHOLE = {
    "dataset": "datasets/{arch}/{operation}.parquet",
    "model": "training/{arch}/{operation}/" + model_files.MANIFEST,
    "validation": "validation/{arch}/{operation}.json",
}
"""Stages that have one file an operation."""


@dataclass(frozen=True)
class OperationStatus:
    """State of one operation."""

    operation: str
    chunks: int
    """0: the configs stage has not run, and how much work there is is not known."""
    chunks_done: dict[str, int]
    """Stage to the number of chunks whose file is there."""
    compile_seconds: float
    """CPU seconds that the kernels' builds took, now or when the cache got them; 0 where nothing is compiled."""
    code_bytes: int
    """Machine code of the kernels that were built."""
    pairs_to_measure: int
    """Pairs that can run and no alias, in the chunks whose support stage is done."""
    rows_measured: int
    """Lines of the journals, of whatever device and settings."""
    pairs_by_status: dict[str, int]
    """Of the chunks whose benchmark is done."""
    stages_done: tuple[str, ...]
    mean_efficiency: float | None
    """Percent, of the first pick on unseen problems; None before the validation."""


def of_operation(results: Path, arch: str, operation: str) -> OperationStatus:
    """State of an operation; a damaged file is a ``UserError``."""
    of = {"arch": arch, "operation": operation}
    plan_file = results / f"configs/{arch}/{operation}.plan.tsv"
    chunks = list(plan.read(plan_file)) if plan_file.exists() else []
    measured = (results / "libraries" / arch).is_dir()
    files = {
        stage: [path for path in (results / pattern.format(**of, chunk=chunk) for chunk in chunks) if path.exists()]
        for stage, pattern in CHUNKED.items()
        if measured or stage != "libraries"
    }
    by_status: Counter[str] = Counter()
    for path in files["benchmark"]:
        by_status.update(Receipt.read(path).by_status)
    alias_file = results / f"aliases/{arch}/{operation}.parquet"
    known = aliases.read(alias_file if alias_file.exists() else None)
    validation = results / WHOLE["validation"].format(**of)
    return OperationStatus(
        operation=operation,
        chunks=len(chunks),
        chunks_done={stage: len(paths) for stage, paths in files.items()},
        compile_seconds=sum(_sum(path.with_suffix(".costs.parquet"), "seconds") for path in files["compile"]),
        code_bytes=int(sum(_sum(path, "code_bytes") for path in files["compile"])),
        pairs_to_measure=sum(_supported_pairs(path, known) for path in files["support"]),
        rows_measured=sum(_lines(path) for path in sorted((results / f"journals/{arch}/{operation}").glob("*.csv"))),
        pairs_by_status=dict(sorted(by_status.items())),
        stages_done=tuple(stage for stage, pattern in WHOLE.items() if (results / pattern.format(**of)).exists()),
        mean_efficiency=documents.read(validation, Validation).efficiency.mean if validation.exists() else None,
    )


def eta_seconds(before: OperationStatus, after: OperationStatus, seconds: float) -> float | None:
    """Seconds that the remaining pairs take at the rate between two looks; None where nothing moved."""
    rate = (after.rows_measured - before.rows_measured) / seconds
    left = after.pairs_to_measure - sum(after.pairs_by_status.values())
    return None if rate <= 0 else max(left, 0) / rate


def _supported_pairs(path: Path, known: pa.Table) -> int:
    pairs = parquet.read(path, columns=["kernel_id", "rule"])
    measured = pc.and_(support_table.supported(pairs), aliases.own(pairs, known))
    return int(pc.sum(measured).as_py() or 0)


def _sum(path: Path, column: str) -> float:
    return float(pc.sum(parquet.read(path, columns=[column])[column]).as_py() or 0.0)


def _lines(path: Path) -> int:
    """The lines of a journal without its header."""
    with path.open("rb") as stream:
        count = sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
    return max(count - 1, 0)
