"""Training of the ranking model: LightGBM on how fast each pair is within its problem.

What is learnt (``objectives``) and with which hyperparameters is chosen by cross-validation on training problems
(``cross_validation``). Trees explain it from the features; what then remains on average of each candidate (a kernel
is a little better or worse than its description says) is its offset, kept with the pool. A score is the sum.
The same data, settings and LightGBM release give the same bytes, whatever the threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.dataset.measurements import Measurements
from tileseer.gpu.hardware import Hardware
from tileseer.model import (
    correction,
    cross_validation,
    features,
    model_files,
    objectives,
)
from tileseer.model import prior as priors
from tileseer.model.cross_validation import Choice
from tileseer.model.model import OFFSET, Model, write_table
from tileseer.model.objectives import OBJECTIVES, Rows, Table
from tileseer.model.prior import Prior
from tileseer.model.schema import FeatureSpec, Folds, Importances, Manifest, Summary
from tileseer.reference import reference_features
from tileseer.settings.model import TrainingParameters


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
    prior_weights: Sequence[float] = correction.WEIGHTS,
) -> Trained:  # fmt: skip
    """Train on the ``ok`` rows of problems with split ``train``; raise ``UserError`` when there are too few.

    Failed pairs teach nothing but stay in the pool that cross-validation ranks: picking one scores 0. With
    ``settings.prior``, what is trained corrects that model, of which a share out of ``prior_weights`` is kept.
    """
    chosen = features.feature_set(settings.features)
    prior = None
    if settings.prior is not None:
        prior = priors.load(Path(settings.prior), settings.features, measurements.operation.rpartition("_")[0])
    data = table(measurements, training_rows(measurements, settings), hardware, settings, threads, prior)
    problems, candidates = measurements.problems, measurements.candidates
    keys, groups = problems["problem_key"].to_numpy(), problems[settings.cv_group].to_numpy()
    folds = cross_validation.folds_of(data.rows.problem, groups, settings.folds, settings.seed)
    if prior is None:
        choice = cross_validation.choose(data, folds, len(candidates), keys, settings, threads)
        booster, offset = fit(data, choice, len(candidates), threads)
        assert booster is not None
        offered = efficiency.proven(measurements)
    else:
        choice, kept = correction.choose(data, folds, settings, threads, prior_weights)
        fitted, offset = fit(kept.table, choice, len(candidates), threads)
        booster = prior.corrected(fitted, kept.weight)
        offset = offset + kept.weight * prior.offsets(candidates)
        offered = efficiency.proven(measurements) | prior.knows(candidates)
    out_of_fold = cross_validation.picked(data, choice.score, keys)
    counts = zip(chosen.names, booster.feature_importance("split").tolist(), strict=True)
    return Trained(
        model=Model(
            spec_of(measurements, hardware, choice.settings, choice.objective),
            booster,
            candidates.assign(**{OFFSET: offset})[offered].reset_index(drop=True),
            hardware,
        ),
        cv=cross_validation.fold_metrics(data, folds, choice.score, choice.objective, settings),
        out_of_fold=out_of_fold.merge(problems[["problem_key", "layer_family", "ndim"]], on="problem_key"),
        importances=Importances(dict(sorted(counts, key=lambda p: (-p[1], p[0])))),
        manifest=_manifest(measurements, data.rows, choice, booster.num_trees(), out_of_fold, prior),
    )


def fit(data: Table, choice: Choice, candidates: int, threads: int) -> tuple[lightgbm.Booster | None, np.ndarray]:
    """A model of all rows that learn, None for one without trees, and the offset of each candidate [Q]."""
    learnt = np.flatnonzero(data.rows.learn)
    objective, settings = choice.objective, choice.settings
    booster = objectives.fit(objective, data, learnt, settings, choice.trees, threads) if choice.trees else None
    return booster, cross_validation.offsets(objective, booster, data, learnt, candidates, settings, threads)


def table(
    measurements: Measurements, rows: Rows, hardware: Hardware, settings: TrainingParameters, threads: int,
    prior: Prior | None = None,
) -> Table:  # fmt: skip
    """Rows with their features, ready to fit."""
    chosen = features.feature_set(settings.features)
    matrix = features.compute(
        measurements.problems, measurements.candidates, rows.problem, rows.candidate, hardware, settings.features
    )
    data = objectives.table(rows, matrix, chosen.names, chosen.categorical, settings, threads)
    if prior is None:
        return data
    pairs = rows.problem, rows.candidate
    return replace(data, prior=prior.scores(measurements.problems, measurements.candidates, *pairs, hardware, threads))


def training_rows(measurements: Measurements, settings: TrainingParameters, used: np.ndarray | None = None) -> Rows:
    """The pool rows of the problems ``used`` (bool [P], default: split ``train``) on which anything ran."""
    if used is None:
        used = (measurements.problems["split"] == "train").to_numpy()
    solvable = used & (efficiency.problem_best(measurements) > 0)
    if not solvable.any():
        raise UserError(f"{measurements.operation}: no training problem has a measured time; nothing can be learnt")
    # A skipped pair was not tried: who picks it out of fold has neither won nor lost.
    tried = efficiency.in_pool(measurements) & (measurements.status != efficiency.SKIPPED)
    wanted = np.flatnonzero(solvable[measurements.problem] & tried)
    # One order for every way in which the rows were stored or resumed.
    wanted = wanted[np.lexsort((measurements.candidate[wanted], measurements.problem[wanted]))]
    ok = measurements.status[wanted] == efficiency.OK
    rows = Rows(
        measurements.problem[wanted],
        measurements.candidate[wanted],
        efficiency.by_row(measurements)[wanted],
        np.where(ok, measurements.tflops[wanted], np.nan),
        ok,
    )
    keys = measurements.problems["problem_key"].to_numpy()
    kept = objectives.kept(
        rows.problem, rows.efficiency, keys, settings.rows_per_problem, settings.top_rows, settings.seed
    )
    return replace(rows, learn=ok & kept)


def spec_of(
    measurements: Measurements, hardware: Hardware, settings: TrainingParameters, objective: str
) -> FeatureSpec:
    """The spec of a model of these measurements."""
    chosen = features.feature_set(settings.features)
    variant, _, dtype = measurements.operation.rpartition("_")
    return FeatureSpec(
        op_type="grouped_conv",
        feature_encoding_version=0,
        operation=measurements.operation,
        variant=variant,
        dtype=dtype,
        arch=measurements.arch,
        device=measurements.device,
        device_kind=measurements.device_kind,
        feature_set=settings.features,
        feature_names=list(chosen.names),
        categorical_features=list(chosen.categorical),
        hardware=reference_features.hardware_arguments(hardware),
        targets=["tflops"],
        log_targets=["tflops"],
        target=objective,
        target_meaning=OBJECTIVES[objective].meaning,
        score=f"prediction of the trees + column {OFFSET} of the candidate",
        params=settings.model_dump(mode="json"),
    )


def _manifest(
    measurements: Measurements, rows: Rows, choice: Choice, trees: int, out_of_fold: pd.DataFrame, prior: Prior | None
) -> Manifest:
    trained = measurements.problems.iloc[np.unique(rows.problem[rows.learn])]
    return Manifest(
        operation=measurements.operation,
        arch=measurements.arch,
        device=measurements.device,
        device_kind=measurements.device_kind,
        data_rows=len(measurements.problem),
        pool_rows=len(rows.problem),
        valid_rows=int(np.count_nonzero(~np.isnan(rows.tflops))),
        training_rows=int(rows.learn.sum()),
        unique_problems=int(trained["problem_key"].nunique()),
        layer_families=int(trained["layer_family"].nunique()),
        candidates=len(measurements.candidates),
        requested_n_estimators=choice.settings.n_estimators,
        total_n_estimators=trees,
        out_of_fold_efficiency=Summary.of(out_of_fold["efficiency"].to_numpy()),
        lightgbm=lightgbm.__version__,
        target=choice.objective,
        choice=choice.record,
        settings=choice.settings.model_dump(mode="json"),
        prior=None if prior is None else prior.origin,
    )
