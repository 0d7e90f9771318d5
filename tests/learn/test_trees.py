"""Model texts: the same scores of many rows as of few, whole leaves, and what is refused."""

import re

import learning_samples as samples
import lightgbm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.learn.formula import UNIT
from tileseer.learn.learners.trees import scorer
from tileseer.learn.learners.trees import text as trees

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
    parameters = {"num_leaves": 20, "verbose": -1, "min_data_per_group": 5, "num_threads": 1}
    return lightgbm.train(parameters, lightgbm.Dataset(data, label, categorical_feature=[CATEGORY]), 120)


def test_what_no_reader_needs_of_a_text_changes_no_score_and_no_reason(booster):
    text = booster.model_to_string()
    short = lightgbm.Booster(model_str=trees.canonical(text))
    assert len(trees.canonical(text)) < 0.9 * len(text) and short.num_trees() == booster.num_trees()
    for options in ({}, {"pred_contrib": True}, {"start_iteration": 7, "num_iteration": 9}):
        np.testing.assert_array_equal(short.predict(table(2), **options), booster.predict(table(2), **options))
    assert short.feature_importance("split").tolist() == booster.feature_importance("split").tolist()
    assert "[num_threads: 0]" in trees.canonical(text) and trees.feature_names(text) == booster.feature_name()


def test_many_rows_have_the_scores_of_few(booster, monkeypatch):
    rounded, data = trees.canonical(trees.with_rounded_leaves(booster.model_to_string())), table(3)
    own = scorer.TreeScorer(rounded, None)
    few = own._predict(data)
    monkeypatch.setattr(scorer, "ROWS_FOR_TREES_TOGETHER", 100)
    np.testing.assert_array_equal(own._predict(data), few)
    assert all((tree.leaf % UNIT == 0).all() for tree in trees.nodes(rounded))


def test_a_tree_that_is_one_leaf():
    data = lightgbm.Dataset(np.zeros((50, 2)), np.full(50, 3.5))
    (only, *_) = trees.nodes(lightgbm.train({"verbose": -1}, data, 2).model_to_string())
    assert len(only.feature) == 0 and only.leaf.tolist() == [3.5]


def test_what_is_no_model_is_refused():
    with pytest.raises(UserError, match="LightGBM"):
        trees.load_trees("no model")
    with pytest.raises(UserError, match="no LightGBM model"):
        trees.load_trees("tree\npandas_categorical:[[")


@pytest.mark.parametrize(
    ("pattern", "wrong", "fault"),
    [
        (r"max_feature_idx=5", "max_feature_idx=999999999", "no line max_feature_idx=5 before the trees"),
        (r"num_class=1", "num_class=1\nnum_class=1", "no line num_class=1 before the trees, or several"),
        (r"\nversion", "\ntree_sizes=9\nversion", "sizes in bytes"),
        (r"\nend of trees", "", "have no end"),
        (r"split_feature=\d+", "split_feature=6", "tree 0: split_feature is none of the 6 features"),
        (r"split_feature=\d+", "split_feature=-1", "tree 0: split_feature is none"),
        (r"left_child=\S+", "left_child=0", "tree 0: left_child is no leaf and no node behind its parent"),
        (r"right_child=\S+", "right_child=-999", "tree 0: right_child is no leaf"),
        (r"right_child=\S+", "right_child=9999", "tree 0: right_child is no leaf"),
        (r"threshold=\S+", "threshold=abc", "tree 0: a field is missing or no number"),
        (r"threshold=\S+ ", "threshold=", "tree 0: the numbers of nodes and leaves do not fit"),
        (r"leaf_value=\S+ ", "leaf_value=", "tree 0: num_leaves or num_cat does not fit"),
        (r"leaf_value=.*\n", "", "tree 0: a field is missing"),
        (r"cat_boundaries=0 \d+", "cat_boundaries=0 99999", r"tree \d+: cat_boundaries are no places"),
        (r"is_linear=0", "is_linear=1", "tree 0: its lines are not"),
        (r"num_leaves=\d+", "num_leaves=1000000000", "tree 0: num_leaves or num_cat does not fit its lines"),
        (r"num_cat=\d+", "num_cat=-1", "tree 0: num_leaves or num_cat does not fit its lines"),
        (r"num_leaves=", "num_leaves=3\nnum_leaves=", "tree 0: its lines are not"),
        (r"num_cat=", "\nnum_cat=", "tree 0: its lines are not"),
        (r"num_cat=", "a=\r\nnum_cat=", "tree 0: its lines are not"),
    ],
)
def test_what_leads_a_reader_of_trees_astray_is_named(booster, pattern, wrong, fault):
    sound = trees.canonical(booster.model_to_string())
    text, count = re.subn(pattern, wrong, sound, count=1)
    assert count == 1 and trees.fault_of(sound, COLUMNS) == ""
    assert re.search(fault, trees.fault_of(text, COLUMNS))


@given(data=st.data())
def test_damaged_trees_have_a_fault_or_scores(booster, data):
    text = trees.canonical(booster.model_to_string())
    at = data.draw(st.integers(0, len(text) - 1))
    other, length = data.draw(st.text("0123456789-.e =\nabT", max_size=5)), data.draw(st.integers(0, 9))
    damaged = text[:at] + other + text[at + length :]
    if trees.fault_of(damaged, COLUMNS):
        return
    try:
        loaded = trees.load_trees(damaged)
        assert len(loaded.predict(table(2)[:20])) == 20
    except (UserError, lightgbm.basic.LightGBMError):
        pass


def test_contributions_are_the_difference_of_the_scores(monkeypatch):
    data = samples.measured()
    model = samples.trained().model
    problems, pick, best = data.problems.iloc[[3]], np.array([1]), np.array([7])
    scores = model.scorer.score(problems, data.candidates)[0]
    (few,) = model.scorer.explain(problems, data.candidates, pick, best)
    assert len(few) == scorer.FEATURES_OF_A_PICK
    monkeypatch.setattr(scorer, "FEATURES_OF_A_PICK", 1000)
    (every,) = model.scorer.explain(problems, data.candidates, pick, best)
    assert sum(part.contribution for part in every) == pytest.approx(scores[1] - scores[7], abs=1e-4)
