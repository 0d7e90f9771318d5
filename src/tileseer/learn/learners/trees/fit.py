"""How trees are grown: LightGBM on how fast a pair is within its problem.

The label is the efficiency itself, not its logarithm: its mean over like rows is what picking them earns, so a
candidate that is now the fastest and now a tenth as fast is no good pick. Long problems weigh more.

On top of a formula, whose scores are logarithms of time, the label is ln(efficiency) less what the formula says, the
weight has efficiency squared too, and a problem's level is left out: the best of a few measured rows need not be its
best candidate. The same data, settings and LightGBM release give the same bytes, whatever the threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tileseer.core import exact
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.data.dataset import Dataset
from tileseer.facts.model import ModelSettings
from tileseer.learn.formula import Formula, FormulaPrior, whole_units
from tileseer.learn.learner import Learner, Recipe, Scorer
from tileseer.learn.learners.trees import text
from tileseer.learn.learners.trees.scorer import TreeScorer
from tileseer.libraries.costs.coefficients import Coefficients

if TYPE_CHECKING:
    import lightgbm

LEAST_EFFICIENCY = 0.05
"""Logarithms are of efficiencies raised to this: how bad a bad kernel is does not matter."""
LEAST_WEIGHT = 0.1
"""On a formula, the rows of a problem weigh at least this together, in equal parts: fast candidates decide a pick."""
LEAST_LEAVES, ROWS_PER_LEAF = 15, 400
"""A tree has as many leaves as there are times ``ROWS_PER_LEAF`` rows, at least ``LEAST_LEAVES``, at most the
settings'."""
WEIGHT_OF_SLOPE_1 = 1.0
"""What a formula's slope of 1 weighs beside the rows: as much as some ten of them."""
FIXED = {"objective": "regression", "max_bin": 127, "lambda_l2": 1.0}
"""LightGBM's parameters that nobody had a reason to change."""
FEW_ROWS = 6
"""Rows of a problem, in the mean, below which a library has a handful of solvers, each of its own kind."""
OF_FEW_ROWS = {"min_data_in_leaf": 5, "min_data_per_group": 5, "max_cat_to_onehot": 64}
"""Parameters for such rows: leaves and categories hold few, and a split takes one solver."""


@dataclass(frozen=True, eq=False)
class Binned:
    """A dataset of n pairs with their features, binned once for every fit."""

    dataset: Dataset
    features: lightgbm.Dataset
    start: np.ndarray | None = None
    """Scores of the prior, float64 [n]."""
    formula: FormulaPrior | None = None
    """The prior's formula, if it is one."""


class Trees(Learner):
    """Gradient-boosted trees by a recipe."""

    scorer: ClassVar[type[Scorer]] = TreeScorer

    def prepare(self, dataset: Dataset) -> Binned:
        """Bin the features of a dataset, and score its pairs by the prior."""
        lightgbm = text.load_lightgbm()
        recipe, features, prior = self.recipe, self.recipe.features, prior_of(self.recipe)
        pairs = dataset.problem, dataset.candidate
        matrix = features.matrix(dataset.problems, dataset.candidates, *pairs)
        binned = lightgbm.Dataset(
            matrix,
            np.zeros(len(matrix)),
            feature_name=list(features.names),
            categorical_feature=features.categorical,
            params=parameters(recipe.settings, recipe.threads, len(matrix), few_rows(dataset.problem)),
            # The trees of a prior read the values.
            free_raw_data=not isinstance(prior, TreeScorer),
        ).construct()
        if prior is None:
            return Binned(dataset, binned)
        if isinstance(prior, TreeScorer):
            return Binned(dataset, binned, np.asarray(prior.booster.predict(matrix, num_threads=recipe.threads)))
        formula = FormulaPrior(weight=1.0, coefficients=prior)
        start = Formula(dataset.problems, dataset.candidates, features.gpu, formula).log_speed(*pairs)
        weight = round(slope(dataset, whole_units(start)), 6)
        return Binned(dataset, binned, whole_units(weight * start), FormulaPrior(weight=weight, coefficients=prior))

    def fit(self, prepared: Binned, rows: np.ndarray) -> TreeScorer:
        """Grow trees on some rows of a binned dataset, bool [n]."""
        recipe = self.recipe
        with Progress("train", recipe.settings.n_estimators, "trees") as progress:
            booster = grow(prepared, rows, recipe, progress)
        grown = text.canonical(text.with_rounded_leaves(booster.model_to_string()))
        return TreeScorer(grown, recipe.features, prepared.formula, threads=recipe.threads)


def prior_of(recipe: Recipe) -> TreeScorer | Coefficients | None:
    """Return what the trees start from; ``UserError`` for a model without trees."""
    if recipe.prior is None or isinstance(recipe.prior, Coefficients):
        return recipe.prior
    if not isinstance(recipe.prior.scorer, TreeScorer):
        raise UserError("model.prior: the model to start from has no trees; give one that `model.learner: trees` made")
    return recipe.prior.scorer


def few_rows(problem: np.ndarray) -> bool:
    """Return whether a problem has fewer than ``FEW_ROWS`` rows in the mean; ``problem`` (int [n]) is that of each."""
    return len(problem) < FEW_ROWS * len(np.unique(problem))


def parameters(settings: ModelSettings, threads: int, rows: int, few: bool) -> dict[str, Any]:
    """Return LightGBM's parameters; ``rows`` are those to learn from, of all folds, ``few`` as ``few_rows`` says."""
    return FIXED | {
        "num_leaves": min(settings.num_leaves, max(rows // ROWS_PER_LEAF, LEAST_LEAVES)),
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_child_samples,
        **(OF_FEW_ROWS if few else {}),
        "feature_fraction": settings.feature_fraction,
        "seed": settings.seed,
        "deterministic": True,
        # Column-wise histograms are summed by one thread each: the sums do not depend on the number of threads. One
        # thread alone makes the same sums row by row, in two thirds of the time.
        "force_col_wise": threads != 1,
        "force_row_wise": threads == 1,
        "num_threads": threads,
        "verbosity": -1,
    }


def grow(prepared: Binned, rows: np.ndarray, recipe: Recipe, progress: Progress) -> lightgbm.Booster:
    """Return trees that learn from some rows of a binned dataset (bool [n]); ``progress`` counts them."""
    used = parameters(recipe.settings, recipe.threads, prepared.features.num_data(), few_rows(prepared.dataset.problem))
    part = prepared.features.subset(np.flatnonzero(rows).tolist(), params=used)
    problem, efficiency = prepared.dataset.problem[rows], prepared.dataset.efficiency[rows]
    weights, label = time_weight(problem, prepared.dataset.latency_ms[rows]), efficiency - 1.0
    start, prior = 0.0 if prepared.start is None else prepared.start[rows], prior_of(recipe)
    if prepared.formula is not None:
        weights = weights * weight(problem, efficiency)
        label = centred(problem, target(efficiency) - start, weights)
    elif prior is not None:
        # LightGBM itself takes the scores of the trees that it starts from away.
        label = start + centred(problem, label - start, weights)
    part.construct().set_label(label).set_weight(weights)
    return text.load_lightgbm().train(
        used,
        part,
        num_boost_round=recipe.settings.n_estimators,
        init_model=prior.booster if isinstance(prior, TreeScorer) else None,
        callbacks=[lambda _: progress.add()],
    )


def time_weight(problem: np.ndarray, milliseconds: np.ndarray) -> np.ndarray:
    """Return the fourth root of the time of the fastest row of a problem over the median one, float64 [n].

    ``problem`` (int [n]) is sorted. With the times themselves, the longest problems alone would decide.
    """
    first = np.flatnonzero(np.diff(problem, prepend=-1) != 0)
    best = np.minimum.reduceat(milliseconds, first)
    # Square roots are rounded one way everywhere, powers are not.
    return np.repeat(np.sqrt(np.sqrt(best / np.median(best))), np.diff(first, append=len(problem)))


def weight(problem: np.ndarray, efficiency: np.ndarray) -> np.ndarray:
    """Return what n rows of a formula weigh, float64 [n], by their problem (int [n]) and efficiency (0..1, [n])."""
    return np.maximum(efficiency * efficiency, LEAST_WEIGHT / np.bincount(problem)[problem])


def target(efficiency: np.ndarray) -> np.ndarray:
    """Return the logarithm of n efficiencies (0..1), float64 [n]."""
    return exact.log(np.maximum(efficiency, LEAST_EFFICIENCY))


def slope(dataset: Dataset, scores: np.ndarray) -> float:
    """Return how far the pairs of a dataset follow ``scores`` [n]: least squares of the differences within problems.

    Few rows leave it near 1.
    """
    weights = weight(dataset.problem, dataset.efficiency)
    predicted = centred(dataset.problem, scores, weights)
    label = centred(dataset.problem, target(dataset.efficiency), weights)
    fitted = np.sum(weights * predicted * label) + WEIGHT_OF_SLOPE_1
    return max(float(fitted / (np.sum(weights * predicted**2) + WEIGHT_OF_SLOPE_1)), 0.0)


def centred(problem: np.ndarray, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return n values minus the weighted mean of their problem (int [n]), float64 [n]."""
    number = np.unique(problem, return_inverse=True)[1]
    return np.asarray(values - (np.bincount(number, weight * values) / np.bincount(number, weight))[number])
