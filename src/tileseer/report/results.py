"""What the report shows: validation reports and training metrics, read and checked.

Only the fields that the report uses are named here; the stages may write more.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tileseer.conv.operation import VARIANTS, Operation
from tileseer.core.errors import UserError
from tileseer.core.tables import checked
from tileseer.dataset import recording, schema
from tileseer.dataset.efficiency import PERCENTILES
from tileseer.devices.base import DeviceKind
from tileseer.gpu.hardware import Hardware
from tileseer.model import model_files
from tileseer.report import measured
from tileseer.report.measured import Measured

LIBRARY = "cudnn.csv"
"""In a recording, by operation: the times of cuDNN on the same problems."""
Percentiles = Annotated[list[float], Field(min_length=len(PERCENTILES), max_length=len(PERCENTILES))]
"""Efficiencies in percent at ``efficiency.PERCENTILES``."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Summary(_Part):
    """Efficiencies of several picks, in percent."""

    mean: float
    median: float
    p10: float
    min: float


class Stratum(_Part):
    """The picks of some of the problems."""

    n_problems: int
    efficiency: Summary
    noise_floor: dict[str, Summary] = {}
    """What the selectors of ``NoiseFloor`` score on these problems."""


class Baseline(_Part):
    """Choosing without a model."""

    meaning: str
    efficiency: Summary
    percentiles: Percentiles


class PipelineCount(_Part):
    """On how many problems a kernel of one pipeline was picked, and on how many one was the best."""

    picked: int
    best: int


class Spoke(_Part):
    """A feature that made a pick look better than the best candidate, or worse if negative."""

    feature: str
    contribution: float
    of_pick: float
    of_best: float


class WorstPick(_Part):
    """A problem on which the pick is far from the best candidate; ``efficiency`` in percent."""

    network: str
    layer: str
    problem: str
    pick: str
    best: str
    efficiency: float
    spoke_for_the_pick: list[Spoke] = []
    outside_training: list[str] = []
    distance_percentile: float | None = None
    nearest_training_problem: str | None = None


class Pick(_Part):
    """What the model picks for a problem, its efficiency in percent, and how many candidates tie with the best."""

    candidate: str
    efficiency: float
    ties: int | None = None
    tied: bool = False


class RunFloor(_Part):
    """What a selector that knows more than a model would cost a run, percent."""

    end_to_end: float
    flop_weighted: float


class RunCost(_Part):
    """What the picks cost one run of a network; shares in percent."""

    network: str
    run: str
    n_layers: int
    n_failed: int
    end_to_end: float
    flop_weighted: float
    flop_scored: float
    noise_floor: dict[str, RunFloor] = {}


class Distance(_Part):
    """The picks of the problems of one class of distance to the training problems, in octaves."""

    above: float | None
    up_to: float | None
    of_a_known_kind: bool
    n_problems: int
    efficiency: Summary
    noise_floor: dict[str, Summary] = {}


class Oracle(_Part):
    """How much of what could be chosen was timed, percent."""

    mean_coverage: float
    least_coverage: float


class Floor(_Part):
    """What a selector that knows more than a model can scores, or the picks against true times."""

    meaning: str
    efficiency: Summary
    efficiency_best_of_3: Summary | None = None
    efficiency_best_of_5: Summary | None = None


class NoiseFloor(_Part):
    """The figures that bound those of a model; ``perfect_model`` is known of simulated devices only."""

    basis: str
    perfect_selector: Floor
    perfect_model: Floor | None = None
    against_true_best: Floor

    @property
    def best(self) -> Floor:
        """What a perfect model scores; where nobody knows that, the selector that knows every true time."""
        return self.perfect_model or self.perfect_selector

    def entries(self) -> dict[str, Floor]:
        """Return the known ones by name."""
        known = {name: getattr(self, name) for name in ("perfect_selector", "perfect_model", "against_true_best")}
        return {name.replace("_", " "): floor for name, floor in known.items() if floor is not None}


class Ties(_Part):
    """Candidates that the noise does not tell from the best of their problem; shares in percent."""

    meaning: str
    between_runs: float | None
    mean_candidates: float
    problems_with_several: float
    picks: float


class Ahead(_Part):
    """Points of mean efficiency by which ours is ahead, and its interval."""

    mean: float
    interval: list[float]


class Compared(_Part):
    """The reference's trainer on the same problems."""

    meaning: str
    efficiency: Summary
    ahead: Ahead


class LeftOut(_Part):
    """Networks left out in turn."""

    efficiency: Summary


class ActiveRound(_Part):
    """A round of active measuring: pairs so far, their share in percent, and a model of them."""

    round: int
    pairs: int
    share: float
    efficiency: Summary


class ActiveMeasuring(_Part):
    """The learning curve of active measuring."""

    supported_training_pairs: int
    rounds: list[ActiveRound]
    noise_floor: dict[str, Summary] = {}


class LearningShare(_Part):
    """A model of a share of the training problems, percent."""

    share: float
    problems: int
    pairs: int
    efficiency: Summary
    interval: dict[str, list[float]]


class Learnt(_Part):
    """A model of a part of the training rows."""

    efficiency: Summary
    interval: dict[str, list[float]]


class TransferShare(_Part):
    """Models of a share of the training pairs, percent, with a prior and without it."""

    share: float
    pairs: int
    with_prior: Learnt
    without_prior: Learnt | None = None


class Transfer(_Part):
    """The learning curve of a model that corrects a prior."""

    prior: dict[str, str]
    seen_by_prior: int = 0
    """Validation problems whose layer the prior was trained on."""
    shares: list[TransferShare]
    noise_floor: dict[str, Summary] = {}


class _Origin(_Part):
    operation: str
    arch: str
    device: str
    device_kind: DeviceKind


class Validation(_Origin):
    """A validation report; shares are in percent of its problems."""

    n_problems: int
    n_without_measurement: int
    n_candidates: int
    mean_pool_size: float
    efficiency: Summary
    percentiles: Percentiles
    pipelines: dict[str, PipelineCount]
    top1: float
    top3: float
    top5: float
    efficiency_best_of_3: Summary
    efficiency_best_of_5: Summary
    within_2_percent: float
    below_80_percent: float
    by_ndim: dict[str, Stratum]
    by_network: dict[str, Stratum]
    baselines: dict[str, Baseline]
    worst: list[WorstPick]
    interval: dict[str, list[float]]
    noise_floor: NoiseFloor
    ties: Ties
    by_layer_kind: dict[str, Stratum]
    by_distance_to_training: dict[str, Stratum]
    reference_trainer: Compared | None = None
    leave_network_out: LeftOut | None = None
    oracle: Oracle | None = None
    end_to_end: list[RunCost] = []
    by_distance: list[Distance] = []
    learning_curve: list[LearningShare] = []
    active: ActiveMeasuring | None = None
    transfer: Transfer | None = None
    picks: dict[str, Pick] = {}

    def choosers(self) -> dict[str, tuple[Summary, Summary | None]]:
        """Return the efficiency of each way to choose and of its floor: the model, with measurements, the baselines."""
        best = self.noise_floor.best
        return {
            "model": (self.efficiency, best.efficiency),
            "best of the model's top 3": (self.efficiency_best_of_3, best.efficiency_best_of_3),
            "best of the model's top 5": (self.efficiency_best_of_5, best.efficiency_best_of_5),
            **{name.replace("_", " "): (b.efficiency, best.efficiency) for name, b in self.baselines.items()},
        }

    def distributions(self) -> dict[str, list[float]]:
        """Return the percentiles of the model and of the baselines."""
        baselines = {name.replace("_", " "): baseline.percentiles for name, baseline in self.baselines.items()}
        return {"model": self.percentiles, **baselines}


class Manifest(_Origin):
    """The origin and the out-of-fold result of a model."""

    training_rows: int
    unique_problems: int
    out_of_fold_efficiency: Summary
    lightgbm: str = "unknown"


class Fold(_Part):
    """One fold of the cross-validation; errors are in the space of the target, null for a ranking."""

    rmse: float | None
    r2: float | None


@dataclass(frozen=True)
class OperationResult:
    """What one operation's training and validation gave."""

    validation: Validation
    manifest: Manifest
    folds: tuple[Fold, ...]
    importances: dict[str, int]
    """Splits of each feature, most used first."""
    measured: Measured | None = None
    """What its dataset shows, if one was given."""
    library_us: dict[str, float] = dataclasses.field(default_factory=dict)
    """Time of cuDNN by problem key, microseconds, where a recording has it."""

    @property
    def label(self) -> str:
        """Operation, arch and device kind: every figure and table carries it."""
        return f"{self.validation.operation}, {self.validation.arch} ({self.validation.device_kind})"


@dataclass(frozen=True)
class Results:
    """All operations of one arch, in the order forward, bwd_data, bwd_weight."""

    arch: str
    device: str
    device_kind: str
    operations: tuple[OperationResult, ...]
    recorded_with: dict[str, str] = dataclasses.field(default_factory=dict)
    """What a recording says of its making, in words; empty without one."""


class _Folds(BaseModel):
    folds: list[Fold] = Field(min_length=1)


class _Importances(BaseModel):
    splits: dict[str, int] = Field(min_length=1)


def load(
    validations: Sequence[Path], trainings: Sequence[Path], datasets: Sequence[Path] = (), recorded: Path | None = None
) -> Results:
    """Read validation reports, the training folders of their models and their datasets, in any order.

    ``recorded`` is the folder of a recording, for its making and for cuDNN's times. Datasets are not needed, but there
    is no more than one an operation. ``UserError`` when a file is missing or has another form, when a report and a
    training have no partner, or when they differ in arch, device or device kind.
    """
    reports = [(path, checked(model_files.read_json(path), Validation, str(path))) for path in validations]
    trained = {}
    for folder in trainings:
        path = folder / model_files.MANIFEST
        manifest = checked(model_files.read_json(path), Manifest, str(path))
        trained[manifest.operation] = (folder, manifest)
    operations = [report.operation for _, report in reports]
    if len(set(operations)) < len(operations) or set(operations) != set(trained) or len(trained) < len(trainings):
        raise UserError(
            f"report: validation reports of {', '.join(operations)} and trainings of {', '.join(trained)}; "
            "give one of each for every operation"
        )
    first = reports[0][1]
    for path, origin in [*reports, *trained.values()]:
        for field in ("arch", "device", "device_kind"):
            if getattr(origin, field) != getattr(first, field):
                raise UserError(
                    f"{path}: {field} is {getattr(origin, field)!r}, but {reports[0][0]} says "
                    f"{getattr(first, field)!r}; one report shows one device"
                )
    shown = _measured(datasets, {name: folder for name, (folder, _) in trained.items()}, first)
    results = [
        _operation(r, *trained[r.operation], shown.get(r.operation), _library_times(recorded, r.operation))
        for _, r in reports
    ]
    told = {} if recorded is None else recording.load(recorded).told()
    return Results(first.arch, first.device, first.device_kind, tuple(sorted(results, key=_order)), told)


def _measured(datasets: Sequence[Path], folders: Mapping[str, Path], first: Validation) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for path in datasets:
        measurements = schema.load(path)
        operation = measurements.operation
        if operation not in folders or operation in found:
            raise UserError(
                f"{path}: operation is {operation!r}; give at most one dataset for each of {', '.join(folders)}"
            )
        for field in ("arch", "device", "device_kind"):
            if getattr(measurements, field) != getattr(first, field):
                raise UserError(
                    f"{path}: {field} is {getattr(measurements, field)!r}, but the validation reports say "
                    f"{getattr(first, field)!r}; one report shows one device"
                )
        table = folders[operation] / model_files.HARDWARE
        found[operation] = measured.of(measurements, checked(model_files.read_json(table), Hardware, str(table)))
    return found


def _library_times(recorded: Path | None, operation: str) -> dict[str, float]:
    """Return cuDNN's median times in microseconds by problem key; nothing where a recording has none."""
    path = None if recorded is None else recorded / operation / LIBRARY
    if path is None or not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    try:
        return {row["problem_key"]: float(row["median_us"]) for row in rows if row["median_us"]}
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: needs the columns problem_key and median_us ({error}); fetch it again") from error


def _operation(
    validation: Validation, folder: Path, manifest: Manifest, shown: Measured | None, library_us: dict[str, float]
) -> OperationResult:
    folds, importances = folder / model_files.CV_METRICS, folder / model_files.IMPORTANCES
    return OperationResult(
        validation,
        manifest,
        tuple(checked({"folds": model_files.read_json(folds)}, _Folds, str(folds)).folds),
        checked({"splits": model_files.read_json(importances)}, _Importances, str(importances)).splits,
        shown,
        library_us,
    )


def _order(result: OperationResult) -> tuple[int, str]:
    operation = Operation.parse(result.validation.operation)
    return VARIANTS.index(operation.variant), operation.dtype
