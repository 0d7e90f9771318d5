"""What is studied beside a model's efficiency: learning curves, layers left out, transfer from a prior."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tileseer.config.model import TrainingParameters, ValidationSettings
from tileseer.costmodel.coefficients import Coefficients
from tileseer.dataset.dataset import Dataset
from tileseer.learn import learning_curve, leave_out
from tileseer.learn.fit import Recipe
from tileseer.learn.model import Model
from tileseer.learn.prior import prior_of
from tileseer.learn.validation_report import Validation
from tileseer.measure import chosen_pairs


def recipe_of(model: Model, threads: int) -> Recipe:
    """The recipe by which a model was trained."""
    settings, formula = TrainingParameters.model_validate(model.spec.params), model.spec.formula
    prior = prior_of(settings, model.spec.operation, formula.coefficients if formula else None)
    return Recipe(model.features, settings, prior, threads)


def with_studies(
    report: Validation, dataset: Dataset, recipe: Recipe, settings: ValidationSettings, chosen: Path | None
) -> Validation:
    """A report with the studies that ``settings`` request and the model's training allows.

    ``chosen``: pairs that active measuring chose.
    """
    # The problems of all comparisons are the same, so their floors are.
    floor = {"noise_floor": report.baselines["best_single_kernel"].noise_floor}
    more: dict[str, Any] = {}
    of_a_model = isinstance(recipe.prior, Model)
    if of_a_model:
        more["transfer"] = learning_curve.of_prior(dataset, recipe).model_copy(update=floor)
    # Few pairs of a problem were chosen, or a prior knows more than they do: a share of the problems would say little.
    elif "learning_curve" in settings.studies and not chosen:
        more["learning_curve"] = learning_curve.of_shares(dataset, learning_curve.SHARES, recipe)
    if chosen:
        pairs = chosen_pairs.read_chosen_pairs(chosen)
        alone = replace(recipe, prior=None) if of_a_model else recipe
        more["active"] = learning_curve.of_rounds(dataset, pairs, alone).model_copy(update=floor)
    return report.model_copy(update=more)


def report_by_layer(dataset: Dataset, recipe: Recipe, simulated: Coefficients | None) -> Validation:
    """The report of a dataset without problems set aside: layers are left out in turn."""
    report = leave_out.validate_by_layer(dataset, recipe, simulated)
    if not isinstance(recipe.prior, Model):
        return report
    return report.model_copy(update={"transfer": learning_curve.of_prior_by_layer(dataset, recipe)})
