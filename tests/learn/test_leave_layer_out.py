"""Validation of a dataset in which no problems were set aside: layers are left out in turn."""

import dataclasses

import learning_samples as samples
import numpy as np

from tileseer.learn import efficiency, fit, layers_left_out, ranking, validation
from tileseer.learn.cross_validation import LAYER_FOLDS

OFFERED = np.ones((4, 2), bool)


def all_train():
    data = samples.measured()
    return dataclasses.replace(data, problems=data.problems.assign(split="train"))


def test_no_model_that_is_judged_has_learnt_from_the_layer(monkeypatch):
    data = all_train()
    grow, seen = fit.grow, []

    def watched(used, learn, settings, progress):
        seen.append((set(used.pairs.problem[learn]), settings.n_estimators))
        return grow(used, learn, settings)

    monkeypatch.setattr(fit, "grow", watched)
    (first, *_), report = layers_left_out.by_layer(data, samples.of(data)), validated(data)
    found = report.leave_layer_out
    assert len(seen) == 2 * LAYER_FOLDS * layers_left_out.REPEATS == 2 * len(found.repeats) * found.folds
    layers = data.problems["layer_family"].to_numpy()
    for number, (learnt, trees) in enumerate(seen[:LAYER_FOLDS]):
        held_out = first.fold == number
        assert held_out.any() and not set(layers[held_out]) & set(layers[list(learnt)])
        assert trees == samples.SMALL.n_estimators
    assert found.repeats[0].mean == report.efficiency.mean == efficiency.percent(first.picked.mean())
    assert found.n_problems == len(first.rows) == int((first.fold != ranking.NEVER).sum())
    assert found.layers == len(set(layers[first.fold != ranking.NEVER]))
    low, high = found.interval["mean"]
    assert low < found.efficiency.mean < high
    assert report == validated(data)


def test_of_many_problems_some_folds_are_judged_and_the_others_train_every_model(monkeypatch):
    data = all_train()
    monkeypatch.setattr(layers_left_out, "ENOUGH", len(data.problems) * 2 // LAYER_FOLDS)
    (whole,) = layers_left_out.by_layer(data, samples.of(data))
    report = validated(data)
    judged = whole.fold != ranking.NEVER
    assert set(whole.fold[judged]) == {0, 1}
    assert report.n_problems == report.leave_layer_out.n_problems == len(whole.rows)
    assert "of 2 of the folds" in report.leave_layer_out.meaning
    monkeypatch.undo()
    every = layers_left_out.by_layer(data, samples.of(data))[0]
    at = np.isin(every.rows, whole.rows)
    assert at.sum() < len(at)
    # Baselines are chosen on layers that are not judged, too.
    assert (every.offered == whole.offered).all() and every.offered[~judged].any()
    # The models are those of the whole deal, so are the picks of the folds that are judged.
    assert (every.fold[judged] == whole.fold[judged]).all() and (every.picks[at] == whole.picks).all()


def validated(data):
    return layers_left_out.validate_by_layer(data, samples.recipe(), None)


def test_the_report_is_of_the_first_deal_and_its_baselines_are_of_other_folds():
    # Candidate 0 is best on the first two problems, candidate 1 on the others: each fold learns the wrong one.
    data = samples.table_of([[10, 5], [10, 5], [5, 10], [5, 10]], ["train"] * 4, ndim=2)
    scores = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], float)
    scored = ranking.score_ranking(data, scores, OFFERED, np.array([0, 0, 1, 1]))
    found = validation.report_of(scored, samples.product(), validation.Context())
    assert found.n_problems == 4 and found.efficiency.mean == 87.5
    single = found.baselines["best_single_kernel"]
    assert single.efficiency.mean == 50.0 and single.candidates is None and "fold" in single.meaning
    # The nearest problem that a model knew is never one of the same fold, so never the problem itself.
    for pick in found.worst:
        assert pick.nearest_training_problem != pick.problem


def test_problems_that_were_set_aside_are_told_from_none():
    assert ranking.has_validation_split(samples.measured())
    assert not ranking.has_validation_split(all_train())
