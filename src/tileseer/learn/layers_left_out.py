"""Validation of a dataset without problems set aside: layers are left out in turn."""

import math

import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core.progress import Progress
from tileseer.dataset.dataset import Dataset
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.learn import cross_validation, efficiency, own_choice, ranking
from tileseer.learn.cross_validation import LAYER_FOLDS
from tileseer.learn.fit import Recipe, Samples, samples_of
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Summary
from tileseer.learn.prior import prior_of
from tileseer.learn.ranking import Scored
from tileseer.learn.validation import Context, report_of
from tileseer.learn.validation_report import LayersLeftOut, Validation

REPEATS, LEAST_FOLDS, ENOUGH = 5, 2, 2500
"""Most deals of the layers to folds, and the folds that are judged at least; no further deal, and no further fold, once
``ENOUGH`` picks are judged."""
LAYERS = (
    "no problems were set aside: layers, at all their batch sizes, are left out in turn; the published model has "
    "learnt from all of them"
)
SOME = "; the figures are of the layers of {} of the folds, which are problems enough"
STARTED = "; the model that training starts from may have learnt from these layers on its own device"


def recipe_of(model: Model, threads: int) -> Recipe:
    """The recipe by which a model was trained."""
    settings, formula = TrainingParameters.model_validate(model.spec.params), model.spec.formula
    prior = prior_of(settings, model.spec.operation, formula.coefficients if formula else None)
    return Recipe(model.features, settings, prior, threads)


def validate_by_layer(dataset: Dataset, recipe: Recipe, simulated: Coefficients | None) -> Validation:
    """The report of a dataset without problems set aside: models of the recipe that have not seen a problem's layer.

    Its figures are of the first deal of layers to folds.
    """
    deals = by_layer(dataset, samples_of(dataset, recipe))
    report = report_of(deals[0], recipe.features.gpu, Context(simulated))
    repeats = [Summary.of(scored.picked) for scored in deals]
    mean = {name: round(float(np.mean([getattr(s, name) for s in repeats])), 4) for name in Summary.model_fields}
    fold = deals[0].fold
    layers = dataset.problems["layer_family"].to_numpy()[fold != ranking.NEVER]
    judged = fold.max() + 1
    figures = LayersLeftOut(
        meaning=LAYERS
        + (SOME.format(judged) if judged < LAYER_FOLDS else "")
        + (STARTED if recipe.settings.prior_folder else ""),
        folds=LAYER_FOLDS,
        layers=len(np.unique(layers)),
        n_problems=len(deals[0].picked),
        repeats=repeats,
        efficiency=Summary(**mean),
        interval=efficiency.intervals(np.stack([scored.picked for scored in deals], axis=1)),
    )
    return report.model_copy(update={"leave_layer_out": figures})


def by_layer(dataset: Dataset, samples: Samples) -> list[Scored]:
    """The picks of models that have not seen a problem's layer, of each deal of the layers to folds.

    Of so many problems that the first folds have ``ENOUGH``, the layers of the others only train.
    """
    problem, settings = samples.pairs.problem, samples.recipe.settings
    problems = len(np.unique(problem))
    deals = min(REPEATS, math.ceil(ENOUGH / problems))
    folds = min(LAYER_FOLDS, max(LEAST_FOLDS, math.ceil(ENOUGH * LAYER_FOLDS / problems)))
    offered = own_choice.offered(samples.pairs) & samples.offered
    scored = []
    with Progress("leave layers out", deals * folds * settings.n_estimators, "trees") as progress:
        for repeat in range(deals):
            of_fold = cross_validation.deal(samples, "layer_family", LAYER_FOLDS, settings.seed + repeat)
            of_fold[of_fold >= folds] = ranking.NEVER
            score = cross_validation.out_of_fold(samples, of_fold, settings.whole, progress)
            fold = np.full(len(dataset.problems), ranking.NEVER)
            fold[problem] = of_fold
            scores = cross_validation.spread(samples, score)
            scored.append(ranking.score_ranking(dataset, scores, offered, fold))
    return scored
