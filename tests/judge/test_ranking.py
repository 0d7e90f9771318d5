"""The picks of models on layers left out in turn, and those of any function."""

import dataclasses

import learning_samples as samples
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.judge import ranking
from tileseer.judge.baselines import score_baselines
from tileseer.learn.learners.trees import fit
from tileseer.learn.rows import LAYER_FOLDS, NO_FOLD
from tileseer.problems.problem import DIMS


def all_train():
    data = samples.measured()
    return dataclasses.replace(data, problems=data.problems.assign(split="train"))


def test_no_model_that_is_judged_has_learnt_from_the_layer(monkeypatch):
    data, grow, seen = all_train(), fit.grow, []

    def watched(prepared, rows, recipe, progress):
        seen.append((set(prepared.dataset.problem[rows]), recipe.settings.n_estimators))
        return grow(prepared, rows, recipe, progress)

    monkeypatch.setattr(fit, "grow", watched)
    scored = ranking.rank_left_out(data, samples.recipe())
    assert len(seen) == LAYER_FOLDS
    sizes = ["N", "Di", "Hi", "Wi"]
    layers = data.problems[[name for name in DIMS if name not in sizes]].apply(tuple, axis=1).to_numpy()
    for number, (learnt, trees) in enumerate(seen):
        held_out = scored.fold == number
        assert held_out.any() and not set(layers[held_out]) & set(layers[list(learnt)])
        assert trees == samples.SMALL.n_estimators
    assert len(scored.rows) == int((scored.fold != NO_FOLD).sum())


def test_of_many_problems_some_folds_are_judged_and_the_others_train_every_model(monkeypatch):
    data = all_train()
    every = ranking.rank_left_out(data, samples.recipe())
    monkeypatch.setattr(ranking, "ENOUGH_JUDGED_PROBLEMS", len(data.problems) * 2 // LAYER_FOLDS)
    some = ranking.rank_left_out(data, samples.recipe())
    judged = some.fold != NO_FOLD
    assert set(some.fold[judged]) == {0, 1}
    at = np.isin(every.rows, some.rows)
    assert at.sum() < len(at)
    # Baselines are chosen on layers that are not judged, too.
    assert (every.offered == some.offered).all() and every.offered[~judged].any()
    # The models are those of the whole deal, so are the picks of the folds that are judged.
    assert (every.fold[judged] == some.fold[judged]).all() and (every.picks[at] == some.picks).all()


def test_baselines_are_of_other_folds():
    # Candidate 0 is best on the first two problems, candidate 1 on the others: each fold learns the wrong one.
    data = samples.table_of([[10, 5], [10, 5], [5, 10], [5, 10]], ["train"] * 4, ndim=2)
    scores = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], float)
    scored = ranking.score_ranking(data, scores, np.ones((4, 2), bool), np.array([0, 0, 1, 1]))
    assert scored.picked.mean() == 0.875
    assert score_baselines(scored, samples.MI355X)["fixed_order"].mean() == 0.5


def test_any_function_of_problems_and_candidates_is_a_picker():
    data = samples.table_of([[1, 1], [20, 10], [10, 20]], ["train", "validation", "validation"], ndim=2)

    def first_of_all(problems, candidates):
        assert len(problems) == 2 and len(candidates) == 2
        return np.array([[1.0, 0.0], [np.nan, np.nan]])

    scored = ranking.rank_by(first_of_all, data)
    assert scored.picked.tolist() == [1.0, 0.0]


WRONG_PICKERS = {
    "no function": (None, "pick is None; give a function"),
    "a number": (lambda problems, candidates: 3, r"int64 of shape \(\); return numbers of shape \(2, 2\)"),
    "a row": (lambda problems, candidates: np.ones(2), r"shape \(2,\); return"),
    "candidates by problems": (lambda problems, candidates: np.ones((2, 3)), r"shape \(2, 3\); return"),
    "words": (lambda problems, candidates: np.full((2, 2), "a"), "<U1 of shape"),
    "nothing that is known": (lambda problems, candidates: np.full((2, 2), np.nan), "no score is finite"),
    "an error": (
        lambda problems, candidates: candidates["tile_x"],
        r"pick: KeyError: 'tile_x' \(test_ranking.py, line \d+\); problems have",
    ),
    "an end": (
        lambda problems, candidates: exit(3),
        "pick: SystemExit: 3; what ends the program belongs below",
    ),
}


@pytest.mark.parametrize("name", WRONG_PICKERS)
def test_a_picker_that_is_none_is_named(name):
    data = samples.table_of([[1, 1], [20, 10], [10, 20]], ["train", "validation", "validation"], ndim=2)
    pick, says = WRONG_PICKERS[name]
    with pytest.raises(UserError, match=says):
        ranking.rank_by(pick, data)
    with pytest.raises(UserError, match="dataset is 'results/x'; give one: Dataset"):
        ranking.rank_by(np.zeros, "results/x")
