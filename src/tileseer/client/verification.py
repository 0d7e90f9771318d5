"""Verification of model directories, datasets, recordings, folders of results and sealed files."""

import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from tileseer.benchmark import chosen_pairs
from tileseer.client.selection import Selector
from tileseer.compile import aliases
from tileseer.configs import plan
from tileseer.conv.operation import Operation
from tileseer.core import parquet, seal
from tileseer.core.errors import UserError
from tileseer.core.places import find
from tileseer.core.progress import Progress
from tileseer.dataset import assembly, provenance, recording, schema
from tileseer.families.coefficients import load_coefficients
from tileseer.gpu.hardware import get as product
from tileseer.model import index as published
from tileseer.model import model_files
from tileseer.problems import problem_table

SEAL = ".*.sha256"
STAGES = ("models", "datasets", "configs")
"""Folders by which a folder of results is known."""


@dataclass(frozen=True)
class Check:
    """One checked thing."""

    subject: str
    ok: bool
    said: str
    """What was found; if something is wrong, how to repair it."""


def check(path: Path, config: Path) -> list[Check]:
    """What was found in ``path``; ``UserError`` if it is nothing of ours. ``config``: folder of the tables."""
    if (path / model_files.INDEX).is_file():
        return _models(path)
    if (path / recording.FILE).is_file():
        return _recording(path, config)
    if path.is_dir() and any((path / stage).is_dir() for stage in STAGES):
        return _results(path)
    if path.is_file() and path.suffix == ".parquet" and b"tileseer" in (pq.read_schema(path).metadata or {}):
        return _tried(str(path), lambda: _dataset(path))
    if path.is_file() and seal.path_of(path).is_file():
        return _tried(str(path), lambda: _sealed(path))
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    raise UserError(
        f"{path}: is neither a model directory ({model_files.INDEX}), a recording ({recording.FILE}), a folder of "
        f"results ({', '.join(STAGES)}), a dataset, nor a file with a seal beside it"
    )


def _tried(subject: str, look: Callable[[], str]) -> list[Check]:
    try:
        return [Check(subject, True, look())]
    except UserError as error:
        return [Check(subject, False, str(error))]


def _models(path: Path) -> list[Check]:
    try:
        index = published.verify(path)
    except UserError as error:
        return [Check(str(path), False, str(error))]
    found = [Check(str(path), True, f"{len(index.sha256)} files have the hashes of {model_files.INDEX}")]
    return found + [
        check for name in index.operations for check in _tried(f"{path}, {name}", partial(_model, path, name))
    ]


def _model(path: Path, operation: str) -> str:
    """Load a model as a selection does, which checks its feature list and its tables; return what it is."""
    selector = Selector.load(path, operation)
    return (
        f"{len(selector.spec.feature_names)} features, all of this release, {selector.booster.num_trees()} trees, "
        f"{len(selector.pool)} candidates, device kind: {selector.spec.device_kind}"
    )


def _dataset(path: Path) -> str:
    """Check a dataset's seal, columns and rows; return what it is."""
    table = schema.read(path)
    made = provenance.of_table(table, path)
    measurements = schema.of_table(table, path)
    timed = int((measurements.latency_ms > 0).sum())
    return (
        f"{table.num_rows:,} rows, {len(measurements.problems):,} problems, {len(measurements.candidates):,} "
        f"candidates, {timed:,} times, {made.device_kind} on {made.device}"
    )


def _recording(path: Path, config: Path) -> list[Check]:
    try:
        told = recording.load(path)
        hardware = product(find(config / "hardware.yaml"), told.device)
        coefficients = load_coefficients(find(config / "simulated_device.yaml"))
    except UserError as error:
        return [Check(str(path), False, str(error))]

    def replayed(operation: str) -> str:
        table = recording.dataset(path, Operation.parse(operation), hardware, coefficients)
        times = table.num_rows - table["latency_ms"].null_count
        return f"{table.num_rows:,} rows, {times:,} times, recorded on {told.device}"

    return [check for name in told.operations for check in _tried(f"{path}, {name}", partial(replayed, name))]


def _sealed(path: Path) -> str:
    seal.check(path)
    if not path.is_file():
        raise UserError(f"{path}: the file is missing, but its seal is there; delete the seal and run again")
    return "has the SHA-256 of its seal"


def _results(path: Path) -> list[Check]:
    """Check every seal, every dataset against the journals that it was made of, and every model directory."""
    sealed = [found.with_name(found.name[1 : -len(".sha256")]) for found in sorted(path.rglob(SEAL))]
    datasets = sorted(path.glob("datasets/*/*.parquet"))
    models = sorted(path.glob(f"models/*/{model_files.INDEX}"))
    looks: list[Callable[[], list[Check]]] = [
        *(partial(_tried, str(file), partial(_sealed, file)) for file in sealed),
        *(partial(_dataset_of_results, path, file) for file in datasets),
        *(partial(_models, index.parent) for index in models),
    ]
    found: list[Check] = []
    with Progress("verify", len(looks), "files") as progress:
        for look in looks:
            checks = look()
            progress.add(failed=int(not all(check.ok for check in checks)))
            found += checks
    broken = [check for check in found[: len(sealed)] if not check.ok]
    said = f"{len(sealed) - len(broken)} of {len(sealed)} sealed files are whole"
    return [Check(str(path), not broken, said), *broken, *found[len(sealed) :]]


def _dataset_of_results(results: Path, file: Path) -> list[Check]:
    found = _tried(str(file), partial(_dataset, file))
    return found + (_tried(f"{file}, journals", partial(_from_journals, results, file)) if found[0].ok else [])


def _from_journals(results: Path, file: Path) -> str:
    """Put a dataset together again, and compare it with the file."""
    arch, operation = file.parent.name, file.stem
    plan_file = results / f"configs/{arch}/{operation}.plan.tsv"
    if not plan_file.is_file():
        return "replayed from a recording: there are no journals"
    here = results.resolve()
    folders = {"build": "parquet", "support": "parquet", "benchmark": "json"}
    chunks = [
        assembly.Chunk(*(here / f"{folder}/{arch}/{operation}/{chunk}.{end}" for folder, end in folders.items()))
        for chunk in plan.read(plan_file)
    ]
    problems = parquet.read(results / f"problems/{operation}.parquet", problem_table.SCHEMA)
    active = results / f"active/{arch}/{operation}.parquet"
    chosen = chosen_pairs.read(active) if active.is_file() else None
    table = (results / f"aliases/{arch}/{operation}.parquet").resolve()
    known = aliases.read(table if table.is_file() else None)
    made = file.resolve()
    # Receipts name their journal from the folder of the workflow.
    with tempfile.TemporaryDirectory() as folder, chdir(results.resolve().parent):
        again = Path(folder, file.name)
        _, quarantined = assembly.write(chunks, problems, arch, operation, again, chosen, known)
        same = parquet.read(again).combine_chunks().equals(parquet.read(made).combine_chunks())
    if not same:
        raise UserError(f"{file}: the journals give other rows; delete it and run again")
    return f"the {len(chunks)} journals give the same rows; {len(quarantined)} lines in quarantine"
