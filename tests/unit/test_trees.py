"""The trees in NumPy have the scores of LightGBM, bit for bit."""

import lightgbm
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.model.trees import Trees, load

ROWS, COLUMNS = 2000, 6
CATEGORY = 5


def table(seed, whole):
    """Numbers of all sizes, zeros and missing ones; the last column holds categories, unknown ones in a new table."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(ROWS, COLUMNS)) * 10.0 ** rng.integers(-3, 4, (ROWS, COLUMNS))
    data[rng.random(data.shape) < 0.1] = 0
    data[:, CATEGORY] = rng.integers(0 if whole else -2, 70, ROWS)
    if not whole:
        data[:, CATEGORY] += rng.random(ROWS) / 2
    data[rng.random(data.shape) < 0.1] = np.nan
    return data.astype(np.float32)


@pytest.mark.parametrize("parameters", [{}, {"zero_as_missing": True}, {"use_missing": False}], ids=str)
def test_scores_are_those_of_lightgbm(parameters):
    data = table(1, whole=True)
    label = np.nan_to_num(data[:, 0]) + (np.nan_to_num(data[:, CATEGORY]) % 7 > 3) + np.isnan(data[:, 1])
    parameters = {"num_leaves": 20, "verbose": -1, "min_data_per_group": 5, **parameters}
    booster = lightgbm.train(parameters, lightgbm.Dataset(data, label, categorical_feature=[CATEGORY]), 30)
    text = booster.model_to_string()
    assert "cat_threshold" in text
    trees = Trees(text)
    assert (trees.num_trees(), trees.feature_name()) == (30, booster.feature_name())
    for unseen in (data, table(2, whole=False)):
        for count in (None, 7):
            np.testing.assert_array_equal(
                trees.predict(unseen, num_iteration=count), booster.predict(unseen, num_iteration=count)
            )
    assert trees.predict(data[:0]).shape == (0,)


def test_a_tree_that_is_one_leaf():
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.zeros((50, 2)), np.full(50, 3.5)), 2)
    rows = np.zeros((4, 2))
    np.testing.assert_array_equal(Trees(booster.model_to_string()).predict(rows), booster.predict(rows))


@pytest.mark.parametrize("read", [load, Trees])
def test_what_is_no_model_is_refused(read, capfd):
    with pytest.raises(ValueError):
        read("this is\nno model")


def test_contributions_need_lightgbm():
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.zeros((50, 2)), np.arange(50)), 1)
    with pytest.raises(UserError, match="workflow"):
        Trees(booster.model_to_string()).predict(np.zeros((1, 2)), pred_contrib=True)
