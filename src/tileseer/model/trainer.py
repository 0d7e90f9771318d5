"""Training of the ranking model: one weighted regression (``regression``) with fixed settings.

The same data, settings and LightGBM release give the same bytes, whatever the threads.
"""

from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from tileseer.core import documents
from tileseer.core.progress import Progress
from tileseer.dataset import efficiency, own_choice
from tileseer.dataset.measurements import Measurements
from tileseer.families.coefficients import Coefficients
from tileseer.gpu.hardware import Hardware
from tileseer.model import cross_validation, features, model_files, prior, regression, rows, trees
from tileseer.model.formula import Formula
from tileseer.model.model import Model, write_table
from tileseer.model.regression import Table
from tileseer.model.rows import Rows
from tileseer.model.schema import FeatureSpec, Folds, FormulaStart, Importances, Manifest, Origin, Summary
from tileseer.reference import reference_features
from tileseer.settings.model import TrainingParameters

Start = Model | FormulaStart | None
"""What training starts from: another model, the device's formula, or nothing."""


@dataclass(frozen=True)
class Trained:
    """What training gives: the model and everything that is published with it."""

    model: Model
    """Its pool has the measured candidates that ran."""
    cv: Folds
    out_of_fold: pd.DataFrame
    """Of each training problem ``problem_key``, ``layer_family``, ``ndim`` and, by a model that has not seen its group,
    ``efficiency`` (0..1) of the pick and ``gap``: see ``cross_validation.picked``."""
    importances: Importances
    manifest: Manifest

    def save(self, folder: Path) -> None:
        """Write ``model_files.TRAINING_FILES`` into ``folder``, each whole or not at all."""
        self.model.save(folder)
        documents.write(folder / model_files.MANIFEST, self.manifest)
        documents.write(folder / model_files.CV_METRICS, self.cv)
        documents.write(folder / model_files.IMPORTANCES, self.importances)
        write_table(folder / model_files.OUT_OF_FOLD, self.out_of_fold)


def train(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, threads: int = 1,
    coefficients: Coefficients | None = None, other_dtype: Measurements | None = None,
) -> Trained:  # fmt: skip
    """Train on the ``ok`` rows of problems with split ``train``; raise ``UserError`` when there are too few.

    Failed pairs teach nothing but stay in the pool that cross-validation ranks: picking one scores 0. With
    ``settings.prior``, what is trained starts from that model, or from the device's formula with ``coefficients``.
    The training rows of ``other_dtype`` are learnt from too; its candidates are not in the model's pool.
    """
    known = measurements if other_dtype is None else measurements.followed_by(other_dtype)
    used = rows.of_problems(known, settings)
    start = start_of(known, used, hardware, settings, coefficients)
    data = table(known, used, hardware, settings, threads, start)
    problems = known.problems
    keys, groups = problems["problem_key"].to_numpy(), problems[settings.cv_group].to_numpy()
    folds = cross_validation.folds_of(data.rows.problem, groups, settings.folds, settings.seed)
    own = own_choice.of(known)
    # A margin holds for models of the size that is published.
    crossed = settings if own is None else settings.whole
    count = len(folds.groups) * crossed.cv_estimators + settings.n_estimators
    with Progress("cross-validate and train", count, "trees") as progress:
        score = cross_validation.out_of_fold(data, folds, keys, crossed, threads, progress)
        learn = np.flatnonzero(data.rows.learn)
        booster = regression.fit(data, learn, settings, settings.n_estimators, threads, progress)
    out_of_fold = cross_validation.picked(data.rows, score, keys)
    names = features.feature_set(settings.features).names
    counts = zip(names, booster.feature_importance("split").tolist(), strict=True)
    margins = _own_margins(known, data.rows, score, own)
    out_of_fold = out_of_fold.merge(measurements.problems[["problem_key", "layer_family", "ndim"]], on="problem_key")
    return Trained(
        model=model_of(measurements, hardware, settings, booster, start, margins),
        cv=cross_validation.fold_metrics(data.rows, folds, score),
        out_of_fold=out_of_fold,
        importances=Importances(dict(sorted(counts, key=lambda p: (-p[1], p[0])))),
        manifest=_manifest(measurements, problems, data.rows, settings, booster.num_trees(), out_of_fold, start),
    )


def small(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, threads: int = 1,
    coefficients: Coefficients | None = None,
) -> Model:  # fmt: skip
    """A model as those of cross-validation, for a study of many: of fewer rows and ``cv_estimators`` trees."""
    settings = few_rows(settings)
    used = rows.of_problems(measurements, settings)
    start = start_of(measurements, used, hardware, settings, coefficients)
    data = table(measurements, used, hardware, settings, threads, start)
    booster = regression.fit(data, np.flatnonzero(data.rows.learn), settings, settings.cv_estimators, threads)
    return model_of(measurements, hardware, settings, booster, start)


def few_rows(settings: TrainingParameters) -> TrainingParameters:
    """The settings with as many rows of a problem as cross-validation takes, half of them the fastest."""
    few = settings.cv_rows_per_problem
    return settings.model_copy(update={"rows_per_problem": few, "top_rows": few // 2})


def start_of(
    measurements: Measurements, used: Rows, hardware: Hardware, settings: TrainingParameters,
    coefficients: Coefficients | None,
) -> Start:  # fmt: skip
    """What ``settings`` start from; ``coefficients`` are those of the device's formula."""
    if settings.prior == "formula":
        if coefficients is None:
            raise ValueError("to start from the formula takes its coefficients")
        whole = FormulaStart(weight=1.0, coefficients=coefficients)
        formula = Formula(measurements.problems, measurements.candidates, hardware, whole)
        weight = regression.slope(used, formula.score(used.problem, used.candidate))
        return FormulaStart(weight=round(weight, 6), coefficients=coefficients)
    if settings.prior_folder is None:
        return None
    return prior.load(settings.prior_folder, settings.features, measurements.operation.rpartition("_")[0])


def table(
    measurements: Measurements, of: Rows, hardware: Hardware, settings: TrainingParameters, threads: int,
    start: Start = None,
) -> Table:  # fmt: skip
    """Rows with their features, ready to fit."""
    chosen = features.feature_set(settings.features)
    matrix = features.compute(
        measurements.problems, measurements.candidates, of.problem, of.candidate, hardware, settings.features
    )
    known = start.booster if isinstance(start, Model) else None
    scores = None
    if isinstance(start, FormulaStart):
        formula = Formula(measurements.problems, measurements.candidates, hardware, start)
        scores = formula.score(of.problem, of.candidate)
    return regression.table(of, matrix, chosen.names, chosen.categorical, settings, threads, known, scores)


def model_of(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, booster: lightgbm.Booster,
    start: Start = None, own_margins: list[float] | None = None,
) -> Model:  # fmt: skip
    """Trees as a model of what ran, and of what the prior knows."""
    offered = efficiency.proven(measurements)
    if isinstance(start, Model):
        offered |= prior.knows(start, measurements.candidates)
    pool = measurements.candidates[offered].reset_index(drop=True)
    formula = start if isinstance(start, FormulaStart) else None
    spec = spec_of(measurements, hardware, settings).model_copy(update={"formula": formula, "own_margins": own_margins})
    return Model(spec, trees.round_leaves(booster), pool, hardware)


def _own_margins(measurements: Measurements, of: Rows, score: np.ndarray, own: np.ndarray | None) -> list[float] | None:
    """The margins of the library's own choice, of scores out of fold; None where no library chooses."""
    if own is None:
        return None
    scores = np.full((len(measurements.problems), len(measurements.candidates)), -np.inf)
    scores[of.problem, of.candidate] = score
    return own_choice.margins(measurements, scores, own)


def spec_of(measurements: Measurements, hardware: Hardware, settings: TrainingParameters) -> FeatureSpec:
    """The spec of a model of these measurements."""
    chosen = features.feature_set(settings.features)
    variant, _, dtype = measurements.operation.rpartition("_")
    return FeatureSpec(
        op_type="grouped_conv",
        feature_encoding_version=0,
        variant=variant,
        dtype=dtype,
        **dict(Origin.of(measurements)),
        feature_set=settings.features,
        feature_names=list(chosen.names),
        categorical_features=list(chosen.categorical),
        hardware=reference_features.hardware_arguments(hardware),
        targets=["tflops"],
        log_targets=["tflops"],
        target="relative",
        target_meaning="ln(TFLOPS / best TFLOPS of the same problem); exp(prediction) is an efficiency, not TFLOPS",
        source=measurements.source,
        library=measurements.library,
        params=settings.model_dump(mode="json"),
    )


def _manifest(
    measurements: Measurements, problems: pd.DataFrame, of: Rows, settings: TrainingParameters, count: int,
    out_of_fold: pd.DataFrame, start: Start,
) -> Manifest:  # fmt: skip
    """``problems``: those that the rows ``of`` are of."""
    trained = problems.iloc[np.unique(of.problem[of.learn])]
    return Manifest(
        **dict(Origin.of(measurements)),
        data_rows=len(measurements.problem),
        pool_rows=len(of.problem),
        valid_rows=int(np.count_nonzero(~np.isnan(of.tflops))),
        training_rows=int(of.learn.sum()),
        unique_problems=int(trained["problem_key"].nunique()),
        layer_families=int(trained["layer_family"].nunique()),
        candidates=len(measurements.candidates),
        total_n_estimators=count,
        out_of_fold_efficiency=Summary.of(out_of_fold["efficiency"].to_numpy()),
        lightgbm=lightgbm.__version__,
        settings=settings.model_dump(mode="json"),
        prior=Origin.of(start.spec) if isinstance(start, Model) else None,
        source=measurements.source,
    )
