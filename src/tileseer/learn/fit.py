"""Fit a model: LightGBM on how fast a pair is within its problem, on top of what a prior says.

The label is ln(efficiency), the weight efficiency squared: the order of the fast candidates decides a pick. Slow ones
count a little where few were measured. With a prior, trees learn what its scores miss, and a problem's level is left
out: the best of a few measured rows need not be its best candidate. The same data, settings and LightGBM release give
the same bytes, whatever the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lightgbm
import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.dataset.dataset import Dataset
from tileseer.kernels.costs.coefficients import Coefficients
from tileseer.learn import trees
from tileseer.learn.features import Features
from tileseer.learn.formula import Formula, FormulaPrior, whole_units
from tileseer.learn.model import Model, spec_of

FLOOR = 0.05
"""Efficiencies below this are raised to it: how bad a bad kernel is does not matter."""
NEAR_BEST = 2
"""Weight of a row: its efficiency to this power."""
LEAST_WEIGHT = 0.1
"""The rows of a problem weigh at least this together, in equal parts. Where a library offers few kernels, one of them
may take a thousand times as long as the others; a model that does not learn it picks that kernel for some layers."""
FEW = 800
"""Rows to learn from; of fewer, leaves and groups of categories hold fewer: splits between solvers need them."""
LEAST = 5
"""Rows that they hold at least, if the settings say no less."""
FEW_LEAVES, ROWS_A_LEAF = 15, 400
"""A tree has as many leaves as there are times ``ROWS_A_LEAF`` rows, at least ``FEW_LEAVES``, at most the settings'."""
GROUP = 100
"""Rows of the categories that one side of a split has, LightGBM's own number."""
TRUST = 1.0
"""What a formula's slope of 1 weighs beside the rows: as much as some ten of them."""
FIXED = {"objective": "regression", "max_bin": 127, "lambda_l2": 1.0}
"""LightGBM's parameters that nobody had a reason to change."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a fit takes beside the data."""

    features: Features
    settings: TrainingParameters
    prior: Model | Coefficients | None = None
    """What training starts from: a model's trees, or the formula with these coefficients."""
    threads: int = 1


def fit(dataset: Dataset, recipe: Recipe) -> Model:
    """A model of the training problems; ``UserError`` where none of them has a measured time.

    Failed pairs teach nothing. The model's pool has the candidates that ran, and those that the prior knows.
    """
    return fit_samples(samples_of(dataset, recipe))


def fit_samples(samples: Samples) -> Model:
    """``fit`` of pairs whose features are there already."""
    pairs, recipe = samples.pairs, samples.recipe
    with Progress("train", recipe.settings.n_estimators, "trees") as progress:
        booster = grow(samples, samples.learn, recipe.settings, progress)
    spec = spec_of(pairs, recipe.features, recipe.settings).model_copy(update={"formula": samples.formula})
    text = trees.canonical(trees.round_leaves(booster).model_to_string())
    return Model(spec, text, pairs.candidates[samples.offered].reset_index(drop=True), recipe.features.gpu)


def small(settings: TrainingParameters) -> TrainingParameters:
    """Settings of ``cv_estimators`` trees on ``cv_rows_per_problem`` rows of a problem, half of them the fastest."""
    few = settings.cv_rows_per_problem
    sizes = {"n_estimators": settings.cv_estimators, "rows_per_problem": few, "top_rows": few // 2}
    return settings.model_copy(update=sizes)


@dataclass(frozen=True, eq=False)
class Samples:
    """n pairs of a dataset with their features, sorted by problem, binned once for every fit."""

    recipe: Recipe
    pairs: Dataset
    matrix: np.ndarray
    """[n, F]"""
    learn: np.ndarray
    """Which pairs teach, bool [n]: measured, and kept by the sampling."""
    binned: lightgbm.Dataset
    """The pairs that teach, in their order."""
    start: np.ndarray | None = None
    """Scores of the prior, float64 [n]."""
    trees: lightgbm.Booster | None = None
    """The prior's trees, if it has some: a fit adds its own to them."""
    formula: FormulaPrior | None = None
    """The prior's formula, if it is one."""

    @property
    def offered(self) -> np.ndarray:
        """Which candidates a model of these pairs offers, bool [Q]: those that ran, and those that the prior knows."""
        prior = self.recipe.prior
        return self.pairs.proven | prior.knows(self.pairs.candidates) if isinstance(prior, Model) else self.pairs.proven


def samples_of(dataset: Dataset, recipe: Recipe) -> Samples:
    """The pairs that were tried on training problems on which anything ran, with what the prior says of them."""
    solvable = (dataset.best_tflops > 0) & dataset.trains
    if not solvable.any():
        raise UserError(f"{dataset.operation}: no training problem has a measured time; nothing can be trained")
    settings, features, prior = recipe.settings, recipe.features, recipe.prior
    rows = np.flatnonzero(solvable[dataset.problem] & dataset.tried)
    # One order for every way in which the rows were stored or resumed.
    pairs = dataset.only(rows[np.lexsort((dataset.candidate[rows], dataset.problem[rows]))])
    learn = sampled(pairs, pairs.ok, settings.rows_per_problem, settings.top_rows, settings.seed)
    matrix = features.matrix(pairs.problems, pairs.candidates, pairs.problem, pairs.candidate)
    binned = binned_rows(matrix[learn], recipe)
    if prior is None:
        return Samples(recipe, pairs, matrix, learn, binned)
    if isinstance(prior, Model):
        start = np.asarray(prior.booster.predict(matrix, num_threads=recipe.threads))
        return Samples(recipe, pairs, matrix, learn, binned, start, prior.booster)
    formula = FormulaPrior(weight=1.0, coefficients=prior)
    start = Formula(pairs.problems, pairs.candidates, features.gpu, formula).log_speed(pairs.problem, pairs.candidate)
    weight = round(slope(pairs, learn, whole_units(start)), 6)
    formula = FormulaPrior(weight=weight, coefficients=prior)
    return Samples(recipe, pairs, matrix, learn, binned, whole_units(weight * start), formula=formula)


def binned_rows(matrix: np.ndarray, recipe: Recipe) -> lightgbm.Dataset:
    """Rows of features, binned; with their values, if the trees of a prior read them."""
    return lightgbm.Dataset(
        matrix,
        np.zeros(len(matrix)),
        feature_name=list(recipe.features.names),
        categorical_feature=recipe.features.categorical,
        params=parameters(recipe.settings, recipe.threads, len(matrix)),
        free_raw_data=not isinstance(recipe.prior, Model),
    ).construct()


def sampled(pairs: Dataset, learn: np.ndarray, per_problem: int, fastest: int, seed: int) -> np.ndarray:
    """``learn`` with at most ``per_problem`` pairs of each problem (0: all), the ``fastest`` first.

    The key of the problem and the seed draw the rest.
    """
    if not per_problem:
        return learn
    keys = pairs.problems["problem_key"].to_numpy()
    keep = np.zeros(len(learn), bool)
    bounds = np.flatnonzero(np.diff(pairs.problem, prepend=-1, append=np.iinfo(np.int32).max))
    for start, stop in pairwise(bounds):
        priority = np.random.default_rng([seed, int(keys[pairs.problem[start]], 16)]).random(stop - start)
        priority[np.argsort(-pairs.efficiency[start:stop], kind="stable")[:fastest]] = -1.0
        keep[start + np.argsort(priority, kind="stable")[:per_problem]] = True
    return learn & keep


def parameters(settings: TrainingParameters, threads: int, rows: int = FEW) -> dict[str, Any]:
    """LightGBM's parameters; ``rows`` are those to learn from, of all folds."""
    share, least = min(rows / FEW, 1.0), min(LEAST, settings.min_child_samples)
    return FIXED | {
        "num_leaves": min(settings.num_leaves, max(rows // ROWS_A_LEAF, FEW_LEAVES)),
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": max(round(settings.min_child_samples * share), least),
        "min_data_per_group": max(round(GROUP * share), least),
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


def grow(
    samples: Samples, learn: np.ndarray, settings: TrainingParameters, progress: Progress | None = None
) -> lightgbm.Booster:
    """Trees that learn from the pairs ``learn`` (bool [n]), among those that teach; ``progress`` counts them."""
    used = parameters(settings, samples.recipe.threads, samples.binned.num_data())
    part = samples.binned.subset(np.flatnonzero(learn[samples.learn]).tolist(), params=used)
    problem, efficiency = samples.pairs.problem[learn], samples.pairs.efficiency[learn]
    weights, label = weight(problem, efficiency), target(efficiency)
    if samples.start is not None:
        start = samples.start[learn]
        label = centred(problem, label - start, weights)
        if samples.trees is not None:
            # LightGBM itself takes the scores of the trees that it starts from away.
            label = start + label
    part.construct().set_label(label).set_weight(weights)
    counted = None if progress is None else [lambda _: progress.add()]
    return lightgbm.train(
        used, part, num_boost_round=settings.n_estimators, init_model=samples.trees, callbacks=counted
    )


def scores_of(booster: lightgbm.Booster, samples: Samples, at: np.ndarray) -> np.ndarray:
    """Scores of some pairs (mask or positions) by ``grow``'s trees, float64."""
    score = np.asarray(booster.predict(samples.matrix[at], num_threads=samples.recipe.threads))
    return score if samples.formula is None or samples.start is None else score + samples.start[at]


def weight(problem: np.ndarray, efficiency: np.ndarray) -> np.ndarray:
    """What rows of these problems and efficiencies (0..1) weigh."""
    return np.maximum(efficiency**NEAR_BEST, LEAST_WEIGHT / np.bincount(problem)[problem])


def target(efficiency: np.ndarray) -> np.ndarray:
    """What is learnt of efficiencies (0..1)."""
    return np.log(np.maximum(efficiency, FLOOR))


def slope(pairs: Dataset, learn: np.ndarray, scores: np.ndarray) -> float:
    """How far the pairs ``learn`` follow ``scores`` [n]: least squares of the differences within problems.

    Few rows leave it near 1.
    """
    problem = pairs.problem[learn]
    weights = weight(problem, pairs.efficiency[learn])
    predicted = centred(problem, scores[learn], weights)
    label = centred(problem, target(pairs.efficiency[learn]), weights)
    fitted = (np.sum(weights * predicted * label) + TRUST) / (np.sum(weights * predicted**2) + TRUST)
    return max(float(fitted), 0.0)


def centred(problem: Sequence[int] | np.ndarray, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Values minus the weighted mean of their problem."""
    number = np.unique(problem, return_inverse=True)[1]
    return np.asarray(values - (np.bincount(number, weight * values) / np.bincount(number, weight))[number])
