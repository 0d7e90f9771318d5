"""The device's formula as a start: worth much with few rows, published with the model, refused where circular."""

import dataclasses

import learning_samples as samples
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.facts.model import ModelSettings
from tileseer.learn import training as stage
from tileseer.learn.formula import Formula, FormulaPrior
from tileseer.learn.learners.trees.scorer import FORMULA
from tileseer.learn.model import Model
from tileseer.measure.simulated_device import SimulatedDevice


def measured():
    """The small world as if a real GPU had been timed."""
    return dataclasses.replace(samples.measured(), device_kind="measured")


def train(data, prior):
    settings = samples.changed(n_estimators=60, prior=prior)
    return samples.train(data, samples.MI355X, settings, coefficients=samples.COEFFICIENTS)


@pytest.fixture(scope="module")
def trained():
    return train(measured(), "formula")


def test_scores_are_those_of_the_formula_and_what_trees_add(trained):
    data = measured()
    model, pairs = trained.model, (data.problem, data.candidate)
    start = model.spec.formula
    formula = Formula(data.problems, data.candidates, samples.MI355X, start).score(*pairs)
    trees = dataclasses.replace(model, scorer=dataclasses.replace(model.scorer, formula=None))
    # The pool holds every candidate here.
    np.testing.assert_allclose(
        model.score_pairs(data.problems, *pairs), formula + trees.score_pairs(data.problems, *pairs)
    )
    # The device deviates little from the formula, so its rows follow it.
    assert 0.8 < start.weight < 1.2
    ok = np.isfinite(data.latency_ms)
    np.testing.assert_allclose(-formula[ok] / start.weight, np.log(1000 * data.latency_ms[ok]), atol=0.6)


def test_rows_that_do_not_follow_the_formula_take_its_weight():
    data = measured()
    chance = np.exp(np.random.default_rng(2).normal(size=len(data.tflops)))
    start = train(dataclasses.replace(data, tflops=np.where(np.isnan(data.tflops), np.nan, chance)), "formula")
    assert start.model.spec.formula.weight < 0.2


def test_with_few_rows_it_is_worth_much():
    data = measured()
    train_row = (data.problems["split"] == "train").to_numpy()[data.problem]
    few = data.only(~train_row | (np.random.default_rng(1).random(len(train_row)) < 0.08))
    with_it, without = (samples.picked(data, train(few, prior).model) for prior in ("formula", "none"))
    assert with_it > without + 0.03


def test_a_published_model_keeps_the_coefficients(trained, tmp_path):
    data = measured()
    trained.save(tmp_path)
    again = Model.read(tmp_path)
    assert again.spec.formula.coefficients == samples.COEFFICIENTS
    pairs = data.problem[:50], data.candidate[:50]
    np.testing.assert_array_equal(
        again.score_pairs(data.problems, *pairs), trained.model.score_pairs(data.problems, *pairs)
    )


def test_the_formula_is_among_the_reasons_of_a_pick(trained):
    data = measured()
    pick, other = np.array([0]), np.array([9])
    (reasons,) = trained.model.scorer.explain(data.problems.iloc[:1], data.candidates, pick, other)
    by_name = {reason.feature: reason for reason in reasons}
    formula = by_name[FORMULA]
    weight = trained.model.spec.formula.weight
    assert formula.contribution == pytest.approx(weight * np.log(formula.of_best / formula.of_pick), abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "expected"), [("simulated", "none"), ("recorded", "formula"), ("measured", "formula")]
)
def test_it_is_the_default_for_real_times_alone(kind, expected):
    data = dataclasses.replace(samples.measured(), device_kind=kind)
    assert stage.settings_for(ModelSettings(), data).prior == expected
    reference = ModelSettings(features="reference")
    assert stage.settings_for(reference, data).prior == "none"


def test_times_that_the_formula_made_are_not_learnt_on_top_of_it():
    with pytest.raises(UserError, match="compared with itself"):
        stage.settings_for(ModelSettings(prior="formula"), samples.measured())
    with pytest.raises(UserError, match="do not support a formula"):
        stage.settings_for(ModelSettings(prior="formula", features="reference"), measured())


def test_a_simulated_time_is_the_formula_and_noise():
    data = samples.measured()
    device = SimulatedDevice(samples.MI355X, samples.COEFFICIENTS, seed=1, launches=1000)
    times = device.measure(data.problems, data.candidates, data.problem, data.candidate)
    start = FormulaPrior(weight=1.0, coefficients=samples.COEFFICIENTS)
    says = -Formula(data.problems, data.candidates, samples.MI355X, start).score(data.problem, data.candidate)
    ok = np.isfinite(times.latency_ms)
    assert np.median(np.abs(np.log(1000 * times.latency_ms[ok]) - says[ok])) < 0.03
