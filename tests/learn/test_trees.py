"""Model texts: the same scores of many rows as of few, whole leaves, and the nodes that serving walks."""

import lightgbm
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.learn import trees
from tileseer.learn.trees import UNIT

ROWS, COLUMNS = 2000, 6
CATEGORY = 5


def table(seed):
    """Numbers of all sizes; the last column holds categories."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(ROWS, COLUMNS)) * 10.0 ** rng.integers(-3, 4, (ROWS, COLUMNS))
    data[:, CATEGORY] = rng.integers(0, 70, ROWS)
    return data


@pytest.fixture(scope="module")
def booster():
    data = table(1)
    label = data[:, 0] + (data[:, CATEGORY] % 7 > 3)
    parameters = {"num_leaves": 20, "verbose": -1, "min_data_per_group": 5}
    return lightgbm.train(parameters, lightgbm.Dataset(data, label, categorical_feature=[CATEGORY]), 120)


def walked(tree, row):
    """Leaf value of one row, by the nodes."""
    if not len(tree.feature):
        return tree.leaf[0]
    node = 0
    while node >= 0:
        value = row[tree.feature[node]]
        if tree.categorical[node]:
            split, category = int(tree.threshold[node]), int(value)
            words = tree.words[tree.bounds[split] : tree.bounds[split + 1]]
            left = category // 32 < len(words) and words[category // 32] >> category % 32 & 1
        else:
            left = value <= tree.threshold[node]
        node = tree.left[node] if left else tree.right[node]
    return tree.leaf[-1 - node]


def test_the_nodes_of_a_text_give_the_scores_of_lightgbm(booster):
    data, found = table(2)[:50], trees.nodes(booster.model_to_string())
    assert any(tree.categorical.any() for tree in found)
    scores = [sum(walked(tree, row) for tree in found) for row in data]
    np.testing.assert_allclose(scores, booster.predict(data), rtol=1e-12)


def test_what_no_reader_needs_of_a_text_changes_no_score_and_no_reason(booster):
    text = booster.model_to_string()
    short = lightgbm.Booster(model_str=trees.canonical(text))
    assert len(trees.canonical(text)) < 0.9 * len(text) and short.num_trees() == booster.num_trees()
    for options in ({}, {"pred_contrib": True}, {"start_iteration": 7, "num_iteration": 9}):
        np.testing.assert_array_equal(short.predict(table(2), **options), booster.predict(table(2), **options))
    assert short.feature_importance("split").tolist() == booster.feature_importance("split").tolist()
    assert "[num_threads: 0]" in trees.canonical(text) and trees.feature_names(text) == booster.feature_name()


def test_many_rows_have_the_scores_of_few(booster, monkeypatch):
    rounded = trees.round_leaves(lightgbm.Booster(model_str=booster.model_to_string()))
    data = table(3)
    few = trees.predict(rounded, data, 1)
    monkeypatch.setattr(trees, "ROWS_FOR_TREES_TOGETHER", 100)
    np.testing.assert_array_equal(trees.predict(rounded, data, 1), few)
    assert all((tree.leaf % UNIT == 0).all() for tree in trees.nodes(rounded.model_to_string()))


def test_a_tree_that_is_one_leaf():
    data = lightgbm.Dataset(np.zeros((50, 2)), np.full(50, 3.5))
    (only, *_) = trees.nodes(lightgbm.train({"verbose": -1}, data, 2).model_to_string())
    assert len(only.feature) == 0 and only.leaf.tolist() == [3.5]


def test_what_is_no_model_is_refused():
    with pytest.raises(UserError, match="LightGBM"):
        trees.load_trees("no model")
