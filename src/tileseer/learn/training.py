"""Training: the model, and where it came from, as they lie in the model's folder."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.facts.model import TrainingParameters
from tileseer.learn import features, model_files, own_choice
from tileseer.learn.cross_validation import Prepared, out_of_fold
from tileseer.learn.evidence import INSIDE, EvidenceBounds, calibrated_bounds, held_out_classes
from tileseer.learn.learner import Recipe, learner_of
from tileseer.learn.model import Model, spec_of
from tileseer.learn.model_schema import FeatureSpec, Manifest, Origin
from tileseer.learn.rows import NO_FOLD, deal, training_pairs
from tileseer.libraries.registry import library_of_arch


def settings_for(settings: TrainingParameters, dataset: Dataset) -> TrainingParameters:
    """Return the settings with the features and the prior that fit a dataset; a model to start from keeps its features.

    ``UserError`` for a formula that made the very times, or that does not exist.
    """
    settings = with_features_of(settings, dataset.arch)
    settings = settings.model_copy(update={"features": _feature_set(settings, dataset)})
    if settings.features == "reference" and dataset.candidates["split_k"].nunique() > 1:
        raise UserError(
            f"model.features: reference: {dataset.operation}: its features do not tell values of split-K apart, "
            "so a model picks one at random; leave one split_k in the rule set or take the features of the kernels"
        )
    lack = _no_formula(settings, dataset.arch, dataset.device_kind)
    if settings.prior == "formula" and lack:
        raise UserError(f"model.prior: formula: {dataset.arch}: {lack}; leave it out")
    if settings.prior == "auto":
        settings = settings.model_copy(update={"prior": "none" if lack else "formula"})
    return settings


def _feature_set(settings: TrainingParameters, dataset: Dataset) -> str:
    """Return the feature set to train with: the one that fits the dataset, or that of the model to start from."""
    if settings.prior_folder is None or "layout" in dataset.problems:
        return features.fitting(settings.features, dataset.candidates, dataset.problems)
    wider = features.feature_set(settings.features).with_layout
    if wider and documents.read_document(settings.prior_folder / model_files.SPEC, FeatureSpec).feature_set == wider:
        return wider
    return settings.features


def with_features_of(settings: TrainingParameters, arch: str) -> TrainingParameters:
    """Return the settings with the feature set of an arch's kernels; ``UserError`` for a set of other kernels."""
    own = library_of_arch(arch)
    if settings.features == "tileseer":
        return settings.model_copy(update={"features": own.feature_set})
    if settings.features not in own.features and (settings.features != "reference" or own.in_reference_words is None):
        raise UserError(
            f"model.features: {settings.features} does not describe the {own.name} kernels of {arch}; leave it out"
        )
    return settings


def _no_formula(settings: TrainingParameters, arch: str, device_kind: str) -> str:
    """Return why training cannot start from a formula; empty if it can."""
    if device_kind == "simulated":
        return "these times come from the formula, so it would be compared with itself"
    if settings.features == "reference":
        return "readers of models with the reference's features do not support a formula"
    return "" if library_of_arch(arch).cost else "its kernels have no formula"


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, and what it learnt from."""

    dataset: Dataset
    prepared: Prepared
    model: Model

    @property
    def manifest(self) -> Manifest:
        """Counts and origin of what the model learnt from."""
        dataset, prepared, prior = self.dataset, self.prepared, self.prepared.recipe.prior
        pairs, teaching = prepared.pairs, prepared.teaching
        trained = pairs.problems.iloc[np.unique(pairs.problem[teaching])]
        return Manifest(
            **dict(Origin.of(dataset)),
            data_rows=len(dataset.problem),
            pool_rows=len(pairs.problem),
            valid_rows=int(np.count_nonzero(pairs.ok)),
            training_rows=int(teaching.sum()),
            unique_problems=int(trained["problem_key"].nunique()),
            layer_families=int(trained["layer_family"].nunique()),
            candidates=len(dataset.candidates),
            learner=self.model.scorer.facts,
            settings=self.model.spec.params,
            prior=Origin.of(prior.spec) if isinstance(prior, Model) else None,
            source=dataset.source,
        )

    def save(self, folder: Path) -> Manifest:
        """Write ``model_files.TRAINING_FILES`` and those of the scorer into ``folder``, each whole or not at all."""
        manifest = self.manifest
        self.model.save(folder)
        documents.write_document(folder / model_files.MANIFEST, manifest)
        return manifest


def train(dataset: Dataset, recipe: Recipe, other_dtype: Dataset | None = None) -> Trained:
    """Train the model of ``dataset``; it learns from the same candidates in the ``other_dtype`` too."""
    pairs = training_pairs(dataset if other_dtype is None else dataset.followed_by(other_dtype))
    prepared, evidence = Prepared.by(recipe, pairs), calibrated_bounds(dataset)
    scorer = learner_of(recipe).fit(prepared.made, np.ones(int(prepared.teaching.sum()), bool))
    margins = own_margins(prepared, evidence)
    spec = spec_of(pairs, recipe.features, recipe.settings, scorer, evidence, margins)
    own = pairs.candidates["candidate"].isin(dataset.candidates["candidate"]).to_numpy()
    model = Model(spec, scorer, pairs.candidates, recipe.features.gpu).with_pool(recipe.offers(pairs) & own)
    return Trained(dataset, prepared, model.calibrated_on(dataset))


def own_margins(prepared: Prepared, evidence: EvidenceBounds) -> list[float] | None:
    """Return the margins of the library's own choice; None where no library chooses.

    Models of cross-validation are smaller than the published one and do more harm, so what holds for them holds for it.
    """
    pairs, settings = prepared.pairs, prepared.recipe.settings
    own = own_choice.library_choices(pairs)
    if own is None:
        return None
    fold = deal(pairs.problems["layer_family"].to_numpy(), pairs.problem, settings.folds, settings.seed)
    rows, inside = np.flatnonzero(fold != NO_FOLD), np.zeros(len(pairs.problems), bool)
    inside[rows] = held_out_classes(pairs, rows, fold, evidence) == INSIDE
    return own_choice.margins(pairs, out_of_fold(prepared, fold, prepared.recipe.small), own, inside)
