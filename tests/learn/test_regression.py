"""The regression: weighted towards the fast candidates, and what it makes of a start."""

import learning_samples as samples
import lightgbm
import numpy as np
import pytest

from tileseer.learn import fit
from tileseer.learn.features import Features
from tileseer.learn.fit import Recipe, Samples


def given(efficiency, x, trees=None):
    """Samples of one feature with these efficiencies [P, Q]."""
    efficiency = np.array(efficiency, float)
    data = samples.table_of(efficiency, "train")
    # As they are, whatever the best of the problem.
    vars(data)["efficiency"] = efficiency.ravel()
    features = Features.of("tileseer", samples.product(), ["K"])
    matrix = np.asarray(x, float).reshape(-1, 1)
    recipe = Recipe(features, samples.SMALL)
    # With their values, as the trees of a prior read them.
    binned = lightgbm.Dataset(
        matrix, np.zeros(len(matrix)), params=fit.parameters(samples.SMALL, 1), free_raw_data=False
    ).construct()
    start = None if trees is None else np.asarray(trees.predict(matrix))
    return Samples(recipe, data, matrix, np.ones(len(matrix), bool), binned, start, trees)


def grown(data, trees):
    return fit.grow(data, data.learn, samples.changed(n_estimators=trees))


def test_it_is_least_squares_weighted_by_efficiency_squared():
    draw = np.random.default_rng(4)
    x = draw.random((60, 12))
    data = given(np.exp(-np.abs(draw.normal(size=x.shape)) * x), x)
    efficiency = data.pairs.efficiency
    ours = fit.scores_of(grown(data, 20), data, data.learn)
    used = fit.parameters(samples.SMALL, 1, x.size)
    weight = np.maximum(efficiency**2, 0.1 / 12)
    plain = lightgbm.Dataset(data.matrix, np.log(np.maximum(efficiency, 0.05)), weight=weight, params=used)
    np.testing.assert_allclose(ours, lightgbm.train(used, plain, num_boost_round=20).predict(data.matrix), atol=1e-9)


def test_too_few_rows_for_a_split_make_a_constant():
    data = given([[0.5, 1.0], [0.8, 1.0]], np.random.default_rng(1).random((2, 2)))
    efficiency = data.pairs.efficiency
    expected = np.average(np.log(efficiency), weights=efficiency**2)
    np.testing.assert_allclose(fit.scores_of(grown(data, 20), data, data.learn), expected, rtol=1e-6)


def test_trees_learn_what_a_prior_misses_within_a_problem():
    x = np.random.default_rng(2).random((40, 10))
    achieved = np.exp(-0.5 * x)
    prior = grown(given(achieved, x), 60)
    # On this device small x are slower.
    data = given(achieved * np.where(x < 0.3, 0.7, 1.0), x, trees=prior)
    fitted = grown(data, 40)
    assert fitted.num_trees() == 60 + 40
    gain = fit.scores_of(fitted, data, data.learn) - prior.predict(data.matrix)
    slower = (x < 0.3).ravel()
    assert gain[~slower].mean() - gain[slower].mean() == pytest.approx(-np.log(0.7), abs=0.05)


def test_a_prior_with_the_order_of_the_rows_is_left_as_it_is():
    x = np.random.default_rng(3).random((30, 8))
    prior = grown(given(np.exp(-0.5 * x), x), 200)
    data = given(0.9 * np.exp(-0.5 * x), x, trees=prior)
    change = fit.scores_of(grown(data, 20), data, data.learn) - prior.predict(data.matrix)
    assert np.abs(change).max() < 0.01


def test_values_are_centred_by_weight_in_each_problem():
    problem, weight = np.array([3, 3, 7, 7]), np.array([1.0, 3.0, 1.0, 1.0])
    found = fit.centred(problem, np.array([0.0, 4.0, 5.0, 7.0]), weight)
    assert found.tolist() == [-3.0, 1.0, -1.0, 1.0]
