"""Verification of model directories, datasets, recordings, and folders of results."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tileseer.core import seal
from tileseer.core.errors import UserError, is_it
from tileseer.core.progress import Progress
from tileseer.data import dataset_files
from tileseer.data.dataset import Dataset
from tileseer.learn import model_files
from tileseer.serve.selector import Selector

RESULTS_FOLDERS = ("models", "datasets", "configs")
"""Folders by which a folder of results is known."""


@dataclass(frozen=True)
class CheckResult:
    """One checked thing."""

    subject: str
    ok: bool
    said: str
    """What it is; if something is wrong, how to repair it."""


def check_path(path: Path) -> list[CheckResult]:
    """Check what lies at ``path``; ``UserError`` if it is nothing of ours."""
    if (path / model_files.INDEX).is_file():
        return model_files.of_one_version(path, lambda: _models(path))
    if model_files.has_operations(path):
        model_files.parse_index(path)  # says what to do without one
    if (path / "pairs.parquet").is_file():
        return [_checked(path, partial(_dataset, path))]
    if (path / dataset_files.FILE).is_file():
        return _recording(path)
    if path.is_dir() and any((path / stage).is_dir() for stage in RESULTS_FOLDERS):
        return _results(path)
    if not path.exists():
        own = Path("results/models", path.name)
        near = f"; name {own}" if own.exists() else is_it(path, path.parent.glob("*"), 0.8)
        raise UserError(f"{path}: there is no such file or folder{near}")
    model_files.refuse_inside(path)
    files = (model_files.INDEX, "pairs.parquet", dataset_files.FILE)
    if path.name in (*files, *(f"{name}.parquet" for name in dataset_files.TABLES)):
        raise UserError(f"{path}: is one file of several; give its folder, {path.parent}")
    if inside := sorted({each.parent.as_posix() for name in files for each in path.glob(f"*/{name}")}):
        raise UserError(f"{path}: name one of its folders: {', '.join(inside)}")
    if path.parent.name == "results":
        raise UserError(f"{path}: is checked with all results; write tileseer verify {path.parent}")
    raise UserError(
        f"{path}: is neither a model directory ({model_files.INDEX}), a dataset or a recording ({dataset_files.FILE}), "
        f"nor a folder of results ({', '.join(RESULTS_FOLDERS)}); a library takes --driver, a list of kernels --emulate"
    )


def _checked(subject: object, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(str(subject), True, check())
    except UserError as error:
        return CheckResult(str(subject), False, str(error))


def _models(path: Path) -> list[CheckResult]:
    try:
        index = model_files.read_index(path)
    except UserError as error:
        return [CheckResult(str(path), False, str(error))]
    whole = CheckResult(str(path), True, f"{len(index.sha256)} files have the hashes of {model_files.INDEX}")
    return [whole, *(_checked(f"{path}, {name}", partial(_model, path, name)) for name in index.operations)]


def _model(path: Path, operation: str) -> str:
    """Load a model, which checks its feature list and its tables; return what it is."""
    model = Selector.read(path, operation).model
    return (
        f"{len(model.spec.feature_names)} features, all of this release, "
        f"{len(model.pool)} candidates, device kind: {model.spec.device_kind}"
    )


def _dataset(folder: Path) -> str:
    """Check the tables of a dataset; return what it is."""
    data = Dataset.read(folder)
    return (
        f"{len(data.problems):,} problems, {len(data.candidates):,} candidates, {len(data.problem):,} pairs, "
        f"{np.count_nonzero(data.ok):,} times, {data.device_kind} on {data.device}"
    )


def _recording(path: Path) -> list[CheckResult]:
    try:
        operations = dataset_files.read_recording(path).operations
    except UserError as error:
        return [CheckResult(str(path), False, str(error))]
    return [_checked(path / name, partial(_dataset, path / name)) for name in operations]


def _results(path: Path) -> list[CheckResult]:
    """Check the seals of the journals, every dataset and every model directory."""
    parts = sorted(path.glob("journals/**/*.parquet"))
    datasets = sorted(one.parent for one in path.glob(f"datasets/*/*/{dataset_files.FILE}"))
    models = sorted(path.glob(f"models/*/{model_files.INDEX}"))
    results: list[CheckResult] = []
    with Progress("verify", len(parts) + len(datasets) + len(models), "files") as progress:
        for own in (
            *([_checked(part, partial(_sealed, part))] for part in parts),
            *([_checked(file, partial(_dataset, file))] for file in datasets),
            *(_models(index.parent) for index in models),
        ):
            progress.add(failed=int(not all(result.ok for result in own)))
            results += own
    return results


def _sealed(part: Path) -> str:
    seal.check_seal(part)
    return "has the SHA-256 of its seal"
