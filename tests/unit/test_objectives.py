"""Objectives: sums of models, the choice by cross-validation, and hyperparameter trials."""

import dataclasses

import learning_samples as samples
import lightgbm
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.dataset import efficiency
from tileseer.model import booster_text, cross_validation, objectives, trainer
from tileseer.model.objectives import CHOICES, Rows
from tileseer.settings.model import TrainingParameters


def changed(**settings):
    return TrainingParameters(**{**samples.SMALL.model_dump(), **settings})


def chance_of(data):
    """Mean efficiency of a random candidate that ran on a training problem, percent."""
    train = np.flatnonzero((data.problems["split"] == "train").to_numpy())
    achieved = efficiency.grid(data, train)
    achieved = achieved[achieved.max(axis=1) > 0]
    return 100 * (achieved.sum(axis=1) / (achieved > 0).sum(axis=1)).mean()


def small_model(seed, features=4):
    rng = np.random.default_rng(seed)
    data = lightgbm.Dataset(
        rng.random((200, features)), rng.random(200), feature_name=[f"f{i}" for i in range(features)]
    )
    return lightgbm.train({"verbosity": -1, "num_leaves": 5, "seed": seed, "num_threads": 1}, data, num_boost_round=3)


def test_a_weighted_sum_of_models_is_a_model():
    models = [small_model(seed) for seed in range(3)]
    weights = [1.0, 0.25, -3.5]
    text = booster_text.weighted_sum(list(zip([m.model_to_string() for m in models], weights, strict=True)))
    combined = lightgbm.Booster(model_str=text)
    points = np.random.default_rng(9).random((50, 4))
    expected = sum(w * m.predict(points) for m, w in zip(models, weights, strict=True))
    np.testing.assert_allclose(combined.predict(points), expected, rtol=1e-13)
    assert combined.num_trees() == sum(m.num_trees() for m in models)
    # LightGBM's own writer leaves it as it is: the sum is in the form that a client reads.
    np.testing.assert_array_equal(
        lightgbm.Booster(model_str=combined.model_to_string()).predict(points), combined.predict(points)
    )


def test_models_of_other_features_or_another_form_are_not_added():
    text = small_model(1).model_to_string()
    with pytest.raises(UserError, match="feature"):
        booster_text.weighted_sum([(text, 1.0), (small_model(1, features=3).model_to_string(), 1.0)])
    with pytest.raises(UserError, match="v4"):
        booster_text.weighted_sum([(text.replace("version=v4", "version=v9"), 1.0)])


@pytest.mark.parametrize("target", list(CHOICES))
def test_every_objective_ranks_better_than_chance_and_is_deterministic(target):
    data = samples.measured()
    settings = changed(target=target, n_estimators=30, cv_estimators=30)
    trained = trainer.train(data, samples.product(), settings)
    assert trained.model.spec.target == trained.manifest.target == target
    assert trained.manifest.out_of_fold_efficiency.mean > chance_of(data) + 5
    assert trainer.train(data, samples.product(), settings, threads=2).model.text == trained.model.text


def test_auto_reports_every_objective_and_takes_one_of_them():
    trained = trainer.train(samples.measured(), samples.product(), changed(target="auto"))
    choice = trained.manifest.choice
    assert [entry.name for entry in choice.objectives] == list(CHOICES)
    [preferred] = [entry.name for entry in choice.objectives if entry.chosen]
    confirmed = (
        [entry.objective for entry in choice.confirmation if entry.chosen] if choice.confirmation else [preferred]
    )
    assert confirmed == [trained.model.spec.target]


def choose(monkeypatch, small, whole, **settings):
    """Choose between two objectives of which each is so much better, as small models and with all trees."""
    data = samples.measured()
    wanted = changed(target="auto", folds=2, cv_estimators=10, n_estimators=20, **settings)
    found = trainer.training_rows(data, wanted)
    table = trainer.table(data, found, samples.product(), wanted, 1)
    fitted = []

    def out_of_fold(objective, table, folds, candidates, settings, trees, threads, held_out_folds=None):
        fitted.append((objective, trees, held_out_folds))
        gain = (small if trees == 10 else whole)[objective == "lambdarank"]
        # A score that puts the best candidate first on that share of the problems, and the slowest on the others.
        return np.where(found.problem % 10 < 10 * gain, 1, -1) * found.efficiency

    monkeypatch.setattr(cross_validation, "out_of_fold", out_of_fold)
    groups = data.problems["layer_family"].to_numpy()
    folds = cross_validation.folds_of(found.problem, groups, wanted.folds, wanted.seed)
    keys = data.problems["problem_key"].to_numpy()
    return cross_validation.choose(table, folds, len(data.candidates), keys, wanted, 1), fitted


def test_what_small_models_prefer_has_to_win_with_all_trees_too(monkeypatch):
    choice, fitted = choose(monkeypatch, small=(0.4, 0.8), whole=(0.8, 0.4))
    assert choice.objective == choice.settings.target.replace("auto", "relative") == "relative"
    assert [entry.chosen for entry in choice.record.confirmation] == [True, False]
    assert [entry.objective for entry in choice.record.confirmation] == ["relative", "lambdarank"]
    assert fitted[-2:] == [("relative", 20, 1), ("lambdarank", 20, 1)]
    choice, _ = choose(monkeypatch, small=(0.4, 0.8), whole=(0.4, 0.8))
    assert choice.objective == "lambdarank"
    assert [entry.chosen for entry in choice.record.confirmation] == [False, True]


def test_what_is_configured_needs_no_confirmation_and_it_can_be_turned_off(monkeypatch):
    choice, fitted = choose(monkeypatch, small=(0.8, 0.4), whole=(0.4, 0.8))
    assert choice.objective == "relative" and choice.record.confirmation is None
    assert {trees for _, trees, _ in fitted} == {10}
    choice, fitted = choose(monkeypatch, small=(0.4, 0.8), whole=(0.8, 0.4), confirm_folds=0)
    assert choice.objective == "lambdarank" and {trees for _, trees, _ in fitted} == {10}


def rows(efficiency):
    efficiency = np.array(efficiency, float)
    problem = np.repeat(np.arange(len(efficiency)), efficiency.shape[1])
    flat = efficiency.ravel()
    return Rows(problem, np.tile(np.arange(efficiency.shape[1]), len(efficiency)), flat, flat, np.ones(len(flat), bool))


class OnlyRows:
    def __init__(self, found):
        self.rows = found


@pytest.mark.parametrize(("gains", "expected"), [([0.1, 0.1, 0.11, 0.09], "other"), ([0.5, -0.4, 0.1, -0.1], "first")])
def test_another_choice_has_to_be_better_by_more_than_a_standard_error(gains, expected):
    table = OnlyRows(rows([[0.5, 0.5 + gain] for gain in gains]))
    scores = {"first": np.tile([1.0, 0.0], len(gains)), "other": np.tile([0.0, 1.0], len(gains))}
    assert cross_validation.best_picks(table, scores) == expected


def test_trials_are_drawn_by_seed_from_the_space_and_recorded():
    settings = changed(search_trials=3)
    drawn = cross_validation._trials(settings)
    assert drawn == cross_validation._trials(settings)
    assert drawn != cross_validation._trials(changed(search_trials=3, seed=2))
    assert all(
        getattr(trial, field) in choices
        for trial in drawn.values()
        for field, choices in cross_validation.SPACE.items()
    )
    trained = trainer.train(samples.measured(), samples.product(), settings)
    entries = trained.manifest.choice.hyperparameters
    assert [entry.name for entry in entries] == ["configured", "trial 1", "trial 2", "trial 3"]
    chosen = next(entry.values for entry in entries if entry.chosen)
    assert all(trained.model.spec.params[field] == value for field, value in chosen.items())


def test_grades_of_a_ranking_rise_with_efficiency():
    label = rows([[0.1, 0.4, 0.7, 1.0]]).label("lambdarank", 0.05)
    assert label.tolist() == [0, 0, 15, 30]


def test_a_ranking_has_the_spread_of_the_logarithms():
    data = samples.measured()
    settings = changed(target="lambdarank", rows_per_problem=0)
    trained = trainer.train(data, samples.product(), settings)
    found = trainer.training_rows(data, settings)
    at = np.flatnonzero(found.learn)
    model = dataclasses.replace(trained.model, pool=data.candidates.assign(offset=0.0))
    scores = model.predict(data.problems, found.problem[at], found.candidate[at])
    label = found.label("relative", settings.relative_floor)[at]
    spreads = [objectives.within_problem_spread(found.problem[at], values) for values in (scores, label)]
    assert spreads[0] == pytest.approx(spreads[1])


def levelled_table(settings, noise, problems=60):
    """Problems whose labels share a noisy level, while differences within them follow from the only feature."""
    draw = np.random.default_rng(4)
    level, x = -np.abs(draw.normal(size=(problems, 1))) * noise, draw.random((problems, 12))
    found = rows(np.exp(level - 0.5 * x))
    return objectives.table(found, x.reshape(-1, 1), ("x",), (), settings, 1), x.ravel()


def test_with_a_whole_level_and_no_weights_the_relative_target_is_plain_least_squares():
    settings = changed(level_share=1.0, near_best=0.0)
    data, x = levelled_table(settings, noise=0.3)
    every = np.arange(len(x))
    ours = objectives.predict(objectives.fit("relative", data, every, settings, 20, 1), data, every, 1)
    parameters = objectives.parameters(settings, 1) | {"objective": "regression"}
    plain = data.binned.subset(every.tolist(), params=parameters).construct()
    plain.set_label(data.rows.label("relative", settings.relative_floor))
    theirs = lightgbm.train(parameters, plain, num_boost_round=20).predict(data.matrix)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_too_few_rows_for_a_split_make_a_constant():
    settings = changed()
    data, x = levelled_table(settings, noise=0.3, problems=2)
    every = np.arange(len(x))
    booster = objectives.fit("relative", data, every, settings, 20, 1)
    label = data.rows.label("relative", settings.relative_floor)
    np.testing.assert_allclose(objectives.predict(booster, data, every, 1), label.mean(), rtol=1e-6)


def test_a_noisy_level_of_a_problem_does_not_hide_the_differences_within_it():
    def error(level_share):
        settings = changed(level_share=level_share, n_estimators=40)
        data, x = levelled_table(settings, noise=1.0)
        every = np.arange(len(x))
        score = objectives.predict(objectives.fit("relative", data, every, settings, 40, 1), data, every, 1)
        return np.std(objectives.centred(data.rows.problem, score + 0.5 * x)), np.mean(score), data

    near, level, data = error(0.1)
    far, _, _ = error(1.0)
    assert near < far / 2
    # The scores stay logarithms of efficiencies: on average they are where the weighted labels are.
    label = data.rows.label("relative", 0.05)
    assert level == pytest.approx(np.average(label, weights=data.rows.efficiency**2), abs=0.1)
