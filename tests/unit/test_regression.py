"""The regression: better than chance, weighted towards the fast candidates, and what it makes of a start."""

import dataclasses

import learning_samples as samples
import lightgbm
import numpy as np
import pytest

from tileseer.dataset import efficiency
from tileseer.model import regression, trainer
from tileseer.model.rows import Rows
from tileseer.settings.model import TrainingParameters


def changed(**settings):
    return TrainingParameters(**{**samples.SMALL.model_dump(), **settings})


def chance_of(data):
    """Mean efficiency of a random candidate that ran on a training problem, percent."""
    train = np.flatnonzero((data.problems["split"] == "train").to_numpy())
    achieved = efficiency.grid(data, train)
    achieved = achieved[achieved.max(axis=1) > 0]
    return 100 * (achieved.sum(axis=1) / (achieved > 0).sum(axis=1)).mean()


def test_it_ranks_better_than_chance_and_is_deterministic():
    data = samples.measured()
    settings = changed(n_estimators=30, cv_estimators=30)
    trained = trainer.train(data, samples.product(), settings)
    assert trained.model.spec.target == "relative"
    assert trained.manifest.out_of_fold_efficiency.mean > chance_of(data) + 5
    assert trainer.train(data, samples.product(), settings, threads=2).model.text == trained.model.text


def rows(efficiency):
    efficiency = np.array(efficiency, float)
    problem = np.repeat(np.arange(len(efficiency)), efficiency.shape[1])
    flat = efficiency.ravel()
    return Rows(problem, np.tile(np.arange(efficiency.shape[1]), len(efficiency)), flat, flat, np.ones(len(flat), bool))


def table(found, x, settings, prior=None):
    return regression.table(found, x.reshape(-1, 1), ("x",), (), settings, 1, prior)


def test_it_is_least_squares_weighted_by_efficiency_squared():
    draw = np.random.default_rng(4)
    x = draw.random((60, 12))
    found = rows(np.exp(-np.abs(draw.normal(size=x.shape)) * x))
    settings = changed()
    data, every = table(found, x, settings), np.arange(x.size)
    ours = regression.predict(regression.fit(data, every, settings, 20, 1), data, every, 1)
    used = regression.parameters(settings, 1)
    label = np.log(np.maximum(found.efficiency, 0.05))
    plain = lightgbm.Dataset(data.matrix, label, weight=found.efficiency**2, params=used)
    np.testing.assert_allclose(ours, lightgbm.train(used, plain, num_boost_round=20).predict(data.matrix), atol=1e-9)


def test_too_few_rows_for_a_split_make_a_constant():
    settings = changed()
    found = rows([[0.5, 1.0], [0.8, 1.0]])
    data = table(found, np.random.default_rng(1).random((2, 2)), settings)
    every = np.arange(4)
    score = regression.predict(regression.fit(data, every, settings, 20, 1), data, every, 1)
    expected = np.average(np.log(found.efficiency), weights=found.efficiency**2)
    np.testing.assert_allclose(score, expected, rtol=1e-6)


def test_trees_learn_what_a_start_misses_within_a_problem():
    x, settings = np.random.default_rng(2).random((40, 10)), changed()
    achieved = np.exp(-0.5 * x)
    start = regression.fit(table(rows(achieved), x, settings), np.arange(x.size), settings, 60, 1)
    # On this device small x are slower.
    found = rows(achieved * np.where(x < 0.3, 0.7, 1.0))
    data, every = table(found, x, settings, start), np.arange(x.size)
    fitted = regression.fit(data, every, settings, 40, 1)
    assert fitted.num_trees() == 60 + 40
    gain = regression.predict(fitted, data, every, 1) - start.predict(data.matrix)
    slower = (x < 0.3).ravel()
    assert gain[~slower].mean() - gain[slower].mean() == pytest.approx(-np.log(0.7), abs=0.05)


def test_a_start_with_the_order_of_the_rows_is_left_as_it_is():
    x, settings = np.random.default_rng(3).random((30, 8)), changed()
    found = rows(np.exp(-0.5 * x))
    data = table(found, x, settings)
    start = regression.fit(data, np.arange(x.size), settings, 200, 1)
    shifted = dataclasses.replace(found, efficiency=found.efficiency * 0.9)
    again = table(shifted, x, settings, start)
    fitted = regression.fit(again, np.arange(x.size), settings, 20, 1)
    change = regression.predict(fitted, again, np.arange(x.size), 1) - start.predict(again.matrix)
    assert np.abs(change).max() < 0.01


def test_values_are_centred_by_weight_in_each_problem():
    problem, weight = np.array([3, 3, 7, 7]), np.array([1.0, 3.0, 1.0, 1.0])
    found = regression.centred(problem, np.array([0.0, 4.0, 5.0, 7.0]), weight)
    assert found.tolist() == [-3.0, 1.0, -1.0, 1.0]
