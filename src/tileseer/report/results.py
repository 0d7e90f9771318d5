"""What the report shows, read and checked: what the stages made of each operation, and what made the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd

from tileseer.core import documents
from tileseer.core.checkout import Source
from tileseer.core.errors import UserError
from tileseer.data import library_times
from tileseer.data.dataset import Dataset
from tileseer.data.provenance import Recording
from tileseer.data.tables import describe
from tileseer.facts.hardware import Hardware
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.learn import model_files
from tileseer.learn.model_schema import Importances, Manifest, Origin, same_origin
from tileseer.report.measured import Measured, measured_of
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.serving_files import Kernels

File = TypeVar("File", Manifest, Kernels, Evaluation, Origin)
ONE_DEVICE = "one report shows one device"


@dataclass(frozen=True)
class OperationResult:
    """What the stages made of one operation."""

    manifest: Manifest
    importances: dict[str, int]
    """Splits of each feature, most used first."""
    measured: Measured
    data: Recording
    kernels: Kernels
    evaluation: Evaluation
    """The picks that ship."""
    library_us: pd.Series
    """Microseconds of cuDNN by problem key; empty if it was not timed."""

    @property
    def label(self) -> str:
        """The title of a figure or table: operation, arch, device kind, and the layers that it leaves out."""
        name = f"{self.evaluation.operation}, {self.evaluation.arch} ({self.evaluation.device_kind})"
        missing = self.evaluation.without_candidate
        return f"{name}, without {missing:,} layers that have no candidate" if missing else name


@dataclass(frozen=True)
class Results:
    """All operations of one arch, in the order forward, bwd_data, bwd_weight."""

    arch: str
    device: str
    device_kind: str
    operations: tuple[OperationResult, ...]
    source: Source
    """The checkout that made the page."""
    settings: str
    """Digest of the configuration."""

    @property
    def label(self) -> str:
        """Arch and device kind."""
        return f"{self.arch} ({self.device_kind})"


@dataclass(frozen=True)
class Inputs:
    """Files of the stages, one of each kind for every operation, in any order."""

    training: Sequence[Path]
    """Folders."""
    dataset: Sequence[Path]
    """Folders."""
    kernels: Sequence[Path]
    evaluation: Sequence[Path]
    cudnn: Sequence[Path] = ()
    """Times of cuDNN in a folder with the name of the operation, where there are some."""

    def read(self, source: Source, settings: str) -> Results:
        """Read everything.

        ``UserError`` when a file is missing or has another form, when an operation lacks one, or when they differ in
        arch, device or device kind.
        """
        first, *_ = read = [documents.read_document(path, Evaluation) for path in self.evaluation]
        operations = [evaluation.operation for evaluation in read]

        def of_each(paths: Sequence[Path], read: Callable[[Path], File]) -> dict[str, File]:
            contents = [read(path) for path in paths]
            for path, content in zip(paths, contents, strict=True):
                same_origin(path, content, first, self.evaluation[0], ONE_DEVICE)
            if sorted(one.operation for one in contents) != sorted(set(operations)):
                files = ", ".join(map(str, paths))
                raise UserError(f"{files}: give one for each operation of the evaluations, {', '.join(operations)}")
            return {one.operation: one for one in contents}

        manifests = of_each(
            self.training, lambda folder: documents.read_document(folder / model_files.MANIFEST, Manifest)
        )
        datasets = dict(zip(of_each(self.dataset, _origin_of), self.dataset, strict=True))
        kernels = of_each(self.kernels, lambda path: documents.read_document(path, Kernels))
        evaluations = of_each(self.evaluation, lambda path: documents.read_document(path, Evaluation))
        cudnn = {path.parent.name: library_times.read_library_times([path])["cuDNN"] for path in self.cudnn}
        results = (
            OperationResult(
                manifests[name],
                documents.read_document(folder / model_files.IMPORTANCES, Importances).root,
                # One dataset at a time: the largest decides the memory.
                measured_of(
                    Dataset.read(datasets[name]), documents.read_document(folder / model_files.HARDWARE, Hardware)
                ),
                describe(datasets[name])[0],
                kernels[name],
                evaluations[name],
                cudnn.get(name, pd.Series(dtype=float)),
            )
            for name, folder in zip(manifests, self.training, strict=True)
        )
        order = [f"{variant}_{dtype}" for variant in VARIANTS for dtype in sorted(DTYPES)]
        ordered = sorted(results, key=lambda result: order.index(result.evaluation.operation))
        return Results(first.arch, first.device, first.device_kind, tuple(ordered), source, settings)


def _origin_of(dataset: Path) -> Origin:
    recording, operation = describe(dataset)
    return Origin(operation=str(operation), arch=recording.arch, device=recording.device, device_kind=recording.kind)
