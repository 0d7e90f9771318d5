"""Training: what it starts from, the model and where it came from, and scores of layers that a model has not seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.core.seal import file_digest
from tileseer.data.dataset import Dataset
from tileseer.facts.model import ModelSettings
from tileseer.learn import model_files, own_choice
from tileseer.learn.evidence import LearntEvidence, calibrated_distances, held_out, with_losses
from tileseer.learn.features import feature_set, fitting
from tileseer.learn.learner import Recipe, Scorer, fitted, learner_of, result_of, scores_of
from tileseer.learn.left_out import judged_folds, judged_picks, layers_at_any_size
from tileseer.learn.model import Model, training_files
from tileseer.learn.model_schema import FeatureSpec, Manifest, Origin
from tileseer.learn.rows import NO_FOLD, sampled, training_pairs
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.reference_features import hardware_arguments
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.kinds import MARGIN_KINDS
from tileseer.problems.problem import DEEP_LAYOUTS, LAYOUTS

MANY_PROBLEMS = 1500
"""Half of so many problems teach what picks lose as well as four fifths do, in half the time. Margins need better."""


def settings_for(settings: ModelSettings, dataset: Dataset) -> ModelSettings:
    """Return the settings with the features and the prior that fit a dataset; a model to start from keeps its features.

    ``UserError`` for a formula that made the very times, or does not exist, and for a feature set of other kernels.
    """
    own = library_of_arch(dataset.arch)
    if settings.features == "tileseer":
        settings = settings.model_copy(update={"features": own.feature_set})
    elif settings.features not in own.features and (settings.features != "reference" or own.in_reference_words is None):
        raise UserError(
            f"model.features: {settings.features} does not describe the {own.name} kernels of {dataset.arch}; "
            "leave it out"
        )
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


def _feature_set(settings: ModelSettings, dataset: Dataset) -> str:
    """Return the feature set to train with: the one that fits the dataset, or that of the model to start from."""
    if settings.prior_folder is None or "layout" in dataset.problems:
        return fitting(settings.features, dataset.candidates, dataset.problems)
    wider = feature_set(settings.features).with_layout
    if wider and documents.read_document(settings.prior_folder / model_files.SPEC, FeatureSpec).feature_set == wider:
        return wider
    return settings.features


def _no_formula(settings: ModelSettings, arch: str, device_kind: str) -> str:
    """Return why training cannot start from a formula; empty if it can."""
    if device_kind == "simulated":
        return "these times come from the formula, so it would be compared with itself"
    if settings.features == "reference":
        return "readers of models with the reference's features do not support a formula"
    return "" if library_of_arch(arch).cost else "its kernels have no formula"


def prior_of(settings: ModelSettings, operation: str, coefficients: Coefficients | None) -> Model | Coefficients | None:
    """Return what ``settings`` let training start from; ``coefficients`` are those of the formula.

    Few measured rows are too few to learn a device from, but they say where a formula or a model of a similar one is
    wrong: a learner learns what the prior misses, and the published model has both.
    """
    if settings.prior == "formula":
        return coefficients
    if settings.prior_folder is None:
        return None
    return read_prior(settings.prior_folder, settings.features, operation.rpartition("_")[0])


def read_prior(folder: Path, features: str, variant: str) -> Model:
    """Read a training folder or the folder of a published operation.

    ``UserError`` when it is another direction's, has other features, or starts from a formula.
    """
    model = Model.read(folder)
    names = list(feature_set(features).names)
    for field, expected in (("variant", variant), ("feature_set", features), ("feature_names", names)):
        value = getattr(model.spec, field)
        if value != expected:
            shown = (value, expected) if field != "feature_names" else ("others", "those of this release")
            raise UserError(
                f"{folder / model_files.SPEC}: {field} is {shown[0]!r}, but the model to train needs {shown[1]!r}; "
                "give model.prior a model of the same direction and features, or leave out other operations"
            )
    if model.spec.formula is not None:
        raise UserError(f"{folder}: the model starts from a formula; give model.prior one without: model.prior none")
    return model


@dataclass(frozen=True, eq=False)
class Prepared:
    """The training pairs of a dataset as a learner prepared them, for models of all rows and for those of folds."""

    recipe: Recipe
    pairs: Dataset
    """n pairs (``rows.training_pairs``)."""
    teaching: np.ndarray
    """Which of them teach, bool [n]."""
    made: Any
    """What the learner made of those."""

    @classmethod
    def by(cls, recipe: Recipe, pairs: Dataset) -> Self:
        """Let the learner of a recipe prepare training pairs."""
        teaching = sampled(pairs, recipe.settings)
        prepared = result_of(recipe.settings.learner, learner_of(recipe).prepare, pairs.only(teaching))
        return cls(recipe, pairs, teaching, prepared)


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

    def save(self, folder: Path, tables: Mapping[str, str] | None = None) -> Manifest:
        """Write ``model_files.TRAINING_FILES`` and those of the scorer into ``folder``, each whole or not at all.

        ``tables``: SHA-256 of the tables of the dataset, by name.
        """
        self.model.save(folder)
        files = {name: file_digest(folder / name) for name in training_files(folder) if name != model_files.MANIFEST}
        manifest = self.manifest.model_copy(update={"dataset": dict(tables or {}), "files": files})
        documents.write_document(folder / model_files.MANIFEST, manifest)
        return manifest


def train(dataset: Dataset, recipe: Recipe, other_dtype: Dataset | None = None) -> Trained:
    """Train the model of ``dataset``; it learns from the same candidates in the ``other_dtype`` too."""
    pairs = training_pairs(dataset if other_dtype is None else dataset.followed_by(other_dtype))
    prepared = Prepared.by(recipe, pairs)
    scorer = fitted(learner_of(recipe), prepared.made, np.ones(int(prepared.teaching.sum()), bool))
    spec = _spec(prepared, scorer, *learnt_of_left_out(prepared, dataset))
    own = pairs.candidates["candidate"].isin(dataset.candidates["candidate"]).to_numpy()
    model = Model(spec, scorer, pairs.candidates, recipe.features.gpu).with_pool(recipe.offers(pairs) & own)
    return Trained(dataset, prepared, model.calibrated_on(dataset))


def _spec(prepared: Prepared, scorer: Scorer, evidence: LearntEvidence, margins: list[float] | None) -> FeatureSpec:
    """Return the spec of a model of prepared pairs."""
    pairs, recipe = prepared.pairs, prepared.recipe
    variant, _, dtype = pairs.operation.rpartition("_")
    return FeatureSpec(
        op_type="grouped_conv",
        feature_encoding_version=0,
        variant=variant,
        dtype=dtype,
        **dict(Origin.of(pairs)),
        feature_set=recipe.settings.features,
        feature_names=list(recipe.features.names),
        categorical_features=recipe.features.categorical,
        hardware=hardware_arguments(recipe.features.gpu),
        targets=["tflops"],
        log_targets=["tflops"],
        target="relative",
        target_meaning=scorer.meaning,
        formula=scorer.formula,
        source=pairs.source,
        taken=pairs.taken,
        library=pairs.library,
        own_margins=margins,
        layouts=_layouts(pairs),
        evidence=evidence,
        params=recipe.settings.model_dump(mode="json"),
    )


def _layouts(dataset: Dataset) -> list[str] | None:
    """Return the layouts of a dataset that has a column of them."""
    if "layout" not in dataset.problems:
        return None
    rows = dataset.problems[["ndim", "layout"]].replace("", library_of_arch(dataset.arch).layout)
    names = [[layout, DEEP_LAYOUTS[layout]] for layout in LAYOUTS]
    return [
        name
        for both in names
        for ndim, name in enumerate(both, start=2)
        if ((rows["ndim"] == ndim) & (rows["layout"] == both[0])).any()
    ]


def learnt_of_left_out(prepared: Prepared, dataset: Dataset) -> tuple[LearntEvidence, list[float] | None]:
    """Return what layers of ``dataset`` that are left out say: the evidence, and the margins of the own choice.

    The margins are None where no library chooses. Models of cross-validation are smaller than the published one and do
    more harm, so what holds for them holds for it.
    """
    pairs, recipe, folds = prepared.pairs, prepared.recipe, prepared.recipe.settings.folds
    learnt = calibrated_distances(dataset)
    own = own_choice.library_choices(pairs)
    if own is None and len(np.unique(pairs.problem)) >= MANY_PROBLEMS:
        folds = 2
    # A margin is for layers of networks, which come in sizes like those that were measured.
    layers = layers_at_any_size(pairs) if own is None else pairs.problems["layer_family"].to_numpy()
    if len(np.unique(layers[pairs.problem])) < folds:
        return learnt, None if own is None else [own_choice.NEVER] * len(MARGIN_KINDS)
    fold = judged_folds(pairs, layers, folds, folds, recipe.settings.seed)
    scores = out_of_fold(prepared, fold, recipe.small)
    of_own_type = len(dataset.problems)
    rows = np.flatnonzero(fold[:of_own_type] != NO_FOLD)
    if own is not None:
        rows = rows[own[rows] != own_choice.NONE]
    judged = judged_picks(pairs, rows, fold, scores, recipe.offers(pairs))
    learnt = with_losses(learnt, dataset, layers_at_any_size(dataset), fold[:of_own_type], judged)
    if own is None:
        return learnt, None
    every, gains = np.flatnonzero(fold != NO_FOLD), np.zeros(len(fold), bool)
    gains[every] = held_out(pairs, every, fold, learnt).gains
    return learnt, own_choice.margins(pairs, scores, own, gains)


def out_of_fold(prepared: Prepared, fold: np.ndarray, recipe: Recipe) -> np.ndarray:
    """Return scores of the tried pairs by models of ``recipe`` that have not seen their fold, float64 [P, Q].

    ``fold`` (int [P]) is the fold of each problem; one in ``NO_FOLD`` teaches every model, and its scores are -inf.
    """
    pairs, learner = prepared.pairs, learner_of(recipe)
    of_row = fold[pairs.problem[prepared.teaching]]
    tried = own_choice.offered(pairs)
    scores = np.full(tried.shape, -np.inf)
    folds = np.unique(fold[fold != NO_FOLD])
    with Progress("cross-validate", len(folds), "models") as progress:
        for one in folds:
            model = fitted(learner, prepared.made, of_row != one)
            rows = np.flatnonzero(fold == one)
            problems = pairs.problems.iloc[rows]
            scores[rows] = scores_of(model, recipe.settings.learner, problems, pairs.candidates, tried[rows])
            progress.add()
    return scores
