"""The picks where no problems were set aside: layers are left out in turn, while the others train."""

import math

import numpy as np
import pandas as pd

from tileseer.data.dataset import Dataset
from tileseer.facts.model import TrainingParameters
from tileseer.learn import own_choice, ranking
from tileseer.learn.cross_validation import LAYER_FOLDS, NO_FOLD, Prepared, deal, out_of_fold
from tileseer.learn.learner import Recipe
from tileseer.learn.model import Model
from tileseer.learn.prior import prior_of
from tileseer.learn.ranking import Scored
from tileseer.learn.rows import training_pairs
from tileseer.problems.problem import DIMS

LEAST_JUDGED_FOLDS, ENOUGH_JUDGED_PROBLEMS = 2, 2500
"""Folds that are judged at least; no further one once ``ENOUGH_JUDGED_PROBLEMS`` picks are judged."""

SIZES_OF_A_RUN = ("N", "Di", "Hi", "Wi")
"""Dimensions that one layer has several of; times at neighbouring sizes would tell a model those of an unseen one."""


def recipe_of(model: Model, threads: int) -> Recipe:
    """Return the recipe by which a model was trained."""
    settings, formula = TrainingParameters.model_validate(model.spec.params), model.spec.formula
    prior = prior_of(settings, model.spec.operation, formula.coefficients if formula else None)
    return Recipe(model.features, settings, prior, threads)


def left_out(dataset: Dataset, recipe: Recipe) -> Scored:
    """Return the picks of models that have not seen a problem's layer, at any size of image and batch, in any layout.

    Of so many problems that the first folds have ``ENOUGH_JUDGED_PROBLEMS``, the layers of the others only train.
    """
    pairs = training_pairs(dataset)
    problems = len(np.unique(pairs.problem))
    judged = max(LEAST_JUDGED_FOLDS, math.ceil(ENOUGH_JUDGED_PROBLEMS * LAYER_FOLDS / problems))
    fold = deal(layers_of(pairs.problems), pairs.problem, LAYER_FOLDS, recipe.settings.seed)
    fold[fold >= judged] = NO_FOLD
    scores = out_of_fold(Prepared.by(recipe, pairs), fold, recipe)
    return ranking.score_ranking(dataset, scores, own_choice.offered(pairs) & recipe.offers(pairs), fold)


def layers_of(problems: pd.DataFrame) -> np.ndarray:
    """Return channels, groups, filter, strides, padding and dilations of each problem, as text [P]."""
    names = [name for name in DIMS if name not in SIZES_OF_A_RUN]
    return np.array([",".join(map(str, row)) for row in problems[names].to_numpy().tolist()])
