"""What training leaves in its folder: the model, its cross-validation, and where it came from."""

from collections.abc import Sequence
from pathlib import Path

import lightgbm
import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.costmodel.cost_models import COST_MODELS
from tileseer.dataset.dataset import Dataset
from tileseer.kernels.registry import FAMILIES, of_arch
from tileseer.learn import model_files, reality_check
from tileseer.learn.cross_validation import CrossValidation
from tileseer.learn.features import features
from tileseer.learn.fit import Samples
from tileseer.learn.model import Model, write_table
from tileseer.learn.model_schema import Importances, Manifest, Origin, Summary
from tileseer.learn.prior import Prior


def settings_for(settings: TrainingParameters, dataset: Dataset) -> TrainingParameters:
    """Settings with the feature set and the prior that fit a dataset; a model to start from keeps its features.

    ``UserError`` for a formula that made the very times, or that does not exist.
    """
    if settings.features == FAMILIES[0].features:
        settings = settings.model_copy(update={"features": of_arch(dataset.arch).features})
    if settings.prior_folder is None:
        settings = settings.model_copy(update={"features": features.fitting(settings.features, dataset.candidates)})
    if settings.features == "reference" and dataset.candidates["split_k"].nunique() > 1:
        raise UserError(
            f"model.features: reference: {dataset.operation}: its features do not tell values of split-K apart, "
            "so a model picks one at random; leave one split_k in the rule set or take the features of the kernels"
        )
    lack = _no_formula(settings, dataset)
    if settings.prior == "formula" and lack:
        raise UserError(f"model.prior: formula: {dataset.operation} of {dataset.arch}: {lack}; leave it out")
    if settings.prior == "auto":
        settings = settings.model_copy(update={"prior": "none" if lack else "formula"})
    return settings


def _no_formula(settings: TrainingParameters, dataset: Dataset) -> str:
    """Why training cannot start from a formula; empty if it can."""
    if dataset.device_kind == "simulated":
        return "the formula made these times, so it would be judged by itself"
    if settings.features == "reference":
        return "who reads a model of the reference's features knows no formula"
    return "" if of_arch(dataset.arch).name in COST_MODELS else "no formula is known of its kernels"


def save_training(
    folder: Path, model: Model, dataset: Dataset, crossed: CrossValidation, samples: Samples, prior: Prior | None,
    recorded: Sequence[Dataset] = (), threads: int = 1,
) -> Manifest:  # fmt: skip
    """Write ``model_files.TRAINING_FILES`` into ``folder``, each whole or not at all.

    ``recorded`` are times that the model is checked on, if it knows candidates of them.
    """
    # Problems of another data type that were learnt from too judge nothing.
    described = dataset.problems[["problem_key", "layer_family", "ndim"]]
    picks = crossed.picks.merge(described, on="problem_key")
    checks = [reality_check.check(model, each, threads) for each in recorded]
    counts = zip(model.spec.feature_names, model.booster.feature_importance("split").tolist(), strict=True)
    manifest = manifest_of(model, dataset, samples, Summary.of(picks["efficiency"].to_numpy()), prior)
    manifest = manifest.model_copy(update={"reality_check": [each for each in checks if each is not None]})
    model.save(folder)
    documents.write_document(folder / model_files.MANIFEST, manifest)
    documents.write_document(folder / model_files.CV_METRICS, crossed.folds)
    importances = dict(sorted(counts, key=lambda pair: (-pair[1], pair[0])))
    documents.write_document(folder / model_files.IMPORTANCES, Importances(importances))
    write_table(folder / model_files.OUT_OF_FOLD, picks)
    return manifest


def manifest_of(
    model: Model, dataset: Dataset, samples: Samples, out_of_fold: Summary, prior: Prior | None
) -> Manifest:
    """Counts and origin of what ``model`` learnt from."""
    pairs = samples.pairs
    trained = pairs.problems.iloc[np.unique(pairs.problem[samples.learn])]
    return Manifest(
        **dict(Origin.of(dataset)),
        data_rows=len(dataset.problem),
        pool_rows=len(pairs.problem),
        valid_rows=int(np.count_nonzero(pairs.ok)),
        training_rows=int(samples.learn.sum()),
        unique_problems=int(trained["problem_key"].nunique()),
        layer_families=int(trained["layer_family"].nunique()),
        candidates=len(dataset.candidates),
        total_n_estimators=model.tree_count,
        out_of_fold_efficiency=out_of_fold,
        lightgbm=lightgbm.__version__,
        settings=model.spec.params,
        prior=Origin.of(prior.model.spec) if prior is not None and prior.model is not None else None,
        source=dataset.source,
    )
