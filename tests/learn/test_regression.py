"""The regression: weighted towards the fast candidates, and what it makes of a start."""

from types import SimpleNamespace

import learning_samples as samples
import lightgbm
import numpy as np
import pytest

from tileseer.learn import boosting
from tileseer.learn.boosting import Binned, centred, parameters


def given(efficiency, x, prior=None):
    """Pairs of one feature with these efficiencies [P, Q]; the values of the feature [n, 1]; the trees of a prior."""
    matrix = np.asarray(x, float).reshape(-1, 1)
    problem = np.repeat(np.arange(len(efficiency)), np.shape(efficiency)[1])
    pairs = SimpleNamespace(problem=problem, efficiency=np.ravel(efficiency))
    # With their values, as the trees of a prior read them.
    binned = lightgbm.Dataset(matrix, np.zeros(len(matrix)), params=parameters(samples.SMALL, 1), free_raw_data=False)
    start = None if prior is None else np.asarray(prior.predict(matrix))
    return Binned(pairs, binned.construct(), start), matrix, prior


def grown(data, trees, monkeypatch):
    """The trees, and their scores of the pairs."""
    prepared, matrix, prior = data
    monkeypatch.setattr(boosting, "Model", SimpleNamespace)
    start = None if prior is None else SimpleNamespace(booster=prior)
    recipe = SimpleNamespace(settings=samples.changed(n_estimators=trees), threads=1, prior=start)
    booster = boosting.grow(prepared, np.ones(len(matrix), bool), recipe)
    return booster, booster.predict(matrix)


def test_it_is_least_squares_weighted_by_efficiency_squared(monkeypatch):
    draw = np.random.default_rng(4)
    x = draw.random((60, 12))
    data = given(np.exp(-np.abs(draw.normal(size=x.shape)) * x), x)
    efficiency, matrix = data[0].dataset.efficiency, data[1]
    weight = np.maximum(efficiency**2, 0.1 / 12)
    used = parameters(samples.SMALL, 1, x.size)
    plain = lightgbm.Dataset(matrix, np.log(np.maximum(efficiency, 0.05)), weight=weight, params=used)
    expected = lightgbm.train(used, plain, num_boost_round=20).predict(matrix)
    np.testing.assert_allclose(grown(data, 20, monkeypatch)[1], expected, atol=1e-9)


def test_too_few_rows_for_a_split_make_a_constant(monkeypatch):
    efficiency = np.array([[0.5, 1.0], [0.8, 1.0]])
    data = given(efficiency, np.random.default_rng(1).random((2, 2)))
    expected = np.average(np.log(efficiency), weights=efficiency**2)
    np.testing.assert_allclose(grown(data, 20, monkeypatch)[1], expected, rtol=1e-6)


def test_trees_learn_what_a_prior_misses_within_a_problem(monkeypatch):
    x = np.random.default_rng(2).random((40, 10))
    achieved = np.exp(-0.5 * x)
    prior, before = grown(given(achieved, x), 60, monkeypatch)
    # On this device small x are slower.
    fitted, after = grown(given(achieved * np.where(x < 0.3, 0.7, 1.0), x, prior), 40, monkeypatch)
    assert fitted.num_trees() == 60 + 40
    gain, slower = after - before, (x < 0.3).ravel()
    assert gain[~slower].mean() - gain[slower].mean() == pytest.approx(-np.log(0.7), abs=0.05)


def test_a_prior_with_the_order_of_the_rows_is_left_as_it_is(monkeypatch):
    x = np.random.default_rng(3).random((30, 8))
    prior, before = grown(given(np.exp(-0.5 * x), x), 200, monkeypatch)
    after = grown(given(0.9 * np.exp(-0.5 * x), x, prior), 20, monkeypatch)[1]
    assert np.abs(after - before).max() < 0.01


def test_values_are_centred_by_weight_in_each_problem():
    problem, weight = np.array([3, 3, 7, 7]), np.array([1.0, 3.0, 1.0, 1.0])
    assert centred(problem, np.array([0.0, 4.0, 5.0, 7.0]), weight).tolist() == [-3.0, 1.0, -1.0, 1.0]
