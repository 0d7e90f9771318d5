"""What the report shows, read and checked: validation reports, training folders, datasets and a recording."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tileseer.config.operations import VARIANTS
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.dataset import library_times, recording
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.learn import model_files
from tileseer.learn.model_schema import Importances, Manifest, Origin, Summary, same_origin
from tileseer.learn.validation_report import Validation
from tileseer.problems.operation import Operation
from tileseer.report.measured import Measured, measured_of
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.serving_files import Kernels

ONE_DEVICE = "one report shows one device"
PUBLISHED_FOR = "gfx950"
PUBLISHED = {
    "forward_bf16": {"mean": 93.05, "median": 96.8, "p10": 79.9},
    "bwd_data_bf16": {"mean": 93.8, "median": 96.5, "p10": 82.9},
    "bwd_weight_bf16": {"mean": 96.1, "median": 99.2, "p10": 89.4},
}
"""Efficiency of the reference's picks on an MI355X in percent, as its authors give it in pull request 6327."""


@dataclass(frozen=True)
class OperationResult:
    """What one operation's training and validation gave."""

    validation: Validation
    manifest: Manifest
    importances: dict[str, int]
    """Splits of each feature, most used first."""
    measured: Measured | None = None
    """What its dataset shows, if one was given."""
    kernels: Kernels | None = None
    """The kernels that a dispatcher knows, and the few that are enough, if they were given."""
    evaluation: Evaluation | None = None
    """How good the picks are that ship, if that is shown."""
    library_us: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Microseconds of other libraries by problem key, a column for each that a recording has."""

    @property
    def label(self) -> str:
        """Operation, arch and device kind: every figure and table carries it."""
        return f"{self.validation.operation}, {self.validation.arch} ({self.validation.device_kind})"

    def choosers(self) -> dict[str, tuple[Summary, Summary | None]]:
        """Efficiency of each way to choose and of its floor: the model, with measurements, the baselines."""
        report, best = self.validation, self.validation.noise_floor.best
        return {
            "model": (report.efficiency, best.efficiency),
            "best of the model's top 3": (report.efficiency_best_of_3, best.efficiency_best_of_3),
            "best of the model's top 5": (report.efficiency_best_of_5, best.efficiency_best_of_5),
            **{name.replace("_", " "): (b.efficiency, best.efficiency) for name, b in report.baselines.items()},
        }

    def distributions(self) -> dict[str, list[float]]:
        """Percentiles of the model and of the baselines."""
        baselines = {name.replace("_", " "): b.percentiles for name, b in self.validation.baselines.items()}
        return {"model": self.validation.percentiles, **baselines}


@dataclass(frozen=True)
class Results:
    """All operations of one arch, in the order forward, bwd_data, bwd_weight."""

    arch: str
    device: str
    device_kind: str
    operations: tuple[OperationResult, ...]
    recorded_with: dict[str, str] = field(default_factory=dict)
    """What a recording says of its making, in words; empty without one."""

    @property
    def label(self) -> str:
        """Arch and device kind."""
        return f"{self.arch} ({self.device_kind})"


def read_results(
    validations: Sequence[Path],
    trainings: Sequence[Path],
    datasets: Sequence[Path] = (),
    recorded: Path | None = None,
    served: Sequence[Path] = (),
    evaluated: Sequence[Path] = (),
) -> Results:
    """Read validation reports, the training folders of their models and their datasets, in any order.

    ``recorded`` is the folder of a recording, for its making and for the times of libraries; ``served`` are kernel
    lists and ``evaluated`` evaluations of the serving stage. Datasets, lists and evaluations are not needed.
    ``UserError`` when a file is missing or has another form, when a report and a training have no partner, or when they
    differ in arch, device or device kind.
    """
    reports = [(path, documents.read_document(path, Validation)) for path in validations]
    first_path, first = reports[0]
    operations = [report.operation for _, report in reports]

    def check(path: Path, origin: Origin | Dataset) -> None:
        same_origin(path, origin, first, first_path, ONE_DEVICE)
        if origin.operation not in operations:
            raise UserError(f"{path}: operation is {origin.operation!r}, but the reports have {', '.join(operations)}")

    trained, shown, lists, evaluations = {}, {}, {}, {}
    for folder in trainings:
        manifest = documents.read_document(folder / model_files.MANIFEST, Manifest)
        check(folder, manifest)
        trained[manifest.operation] = folder, manifest
    if not len(set(operations)) == len(operations) == len(trained) == len(trainings):
        raise UserError(
            f"report: validation reports of {', '.join(operations)} and trainings of {', '.join(trained)}; "
            "give one of each for every operation"
        )
    for path in datasets:
        dataset = Dataset.read(path)
        check(path, dataset)
        hardware = documents.read_document(trained[dataset.operation][0] / model_files.HARDWARE, Hardware)
        shown[dataset.operation] = measured_of(dataset, hardware)
    for path in served:
        kernels = documents.read_document(path, Kernels)
        check(path, kernels)
        lists[kernels.operation] = kernels
    for path in evaluated:
        evaluation = documents.read_document(path, Evaluation)
        check(path, evaluation)
        evaluations[evaluation.operation] = evaluation
    results = []
    for path, validation in reports:
        check(path, validation)
        folder, manifest = trained[validation.operation]
        result = OperationResult(
            validation,
            manifest,
            documents.read_document(folder / model_files.IMPORTANCES, Importances).root,
            shown.get(validation.operation),
            lists.get(validation.operation),
            evaluations.get(validation.operation),
            _library_times(recorded, validation.operation),
        )
        results.append(result)
    making = {} if recorded is None else recording.read_recording(recorded).description()
    return Results(first.arch, first.device, first.device_kind, tuple(sorted(results, key=_order)), making)


def _library_times(recorded: Path | None, operation: str) -> pd.DataFrame:
    names = (library_times.CUDNN, library_times.CHOICES)
    paths = [] if recorded is None else [recorded / operation / name for name in names]
    return library_times.read_library_times([path for path in paths if path.is_file()])


def _order(result: OperationResult) -> tuple[int, str]:
    operation = Operation.parse(result.validation.operation)
    return VARIANTS.index(operation.variant), operation.dtype
