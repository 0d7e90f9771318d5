"""The noise floor, intervals, and what explains a bad pick: against cases whose answer is known."""

import dataclasses

import learning_samples as samples
import numpy as np
import pytest

from tileseer.learn import efficiency, explain, noise_floor, ranking


def test_an_interval_of_equal_values_is_a_point_and_of_others_holds_the_figure():
    assert efficiency.intervals(np.full(20, 0.5)) == {"mean": [50.0, 50.0], "median": [50.0, 50.0], "p10": [50.0, 50.0]}
    values = np.random.default_rng(0).random(400)
    low, high = efficiency.intervals(values)["mean"]
    assert low < 100 * values.mean() < high
    # The standard error of a mean of 400 uniform values is 1.44 points; 95 % is 1.96 of it on either side.
    assert high - low == pytest.approx(2 * 1.96 * 1.44, rel=0.1)
    assert efficiency.intervals(values) == efficiency.intervals(values)


def test_without_noise_the_floor_is_perfect():
    measured = np.array([[1.0, 0.9, 0.0], [0.5, 1.0, 0.7]])
    np.testing.assert_allclose(noise_floor.of_errors(measured, np.zeros_like(measured)), 1.0)


def test_noise_lowers_the_floor_more_in_a_larger_pool_of_equals():
    def perfect(width):
        # Many equal problems: the mean is that of the law, not of one draw.
        measured = np.ones((200, width))
        return noise_floor.of_errors(measured, np.full_like(measured, 0.02)).mean()

    few, many = perfect(2), perfect(60)
    # Of two equals, the luckier is ahead of a given one by 0.02 / sqrt(pi) on average.
    assert 1 - few == pytest.approx(0.02 / np.sqrt(np.pi), rel=0.15)
    assert many < few - 0.02


def test_of_the_simulator_the_floor_is_exact():
    data = samples.measured()
    offered = data.grid(np.arange(len(data.problems))) > 0
    scored = ranking.score_ranking(data, np.zeros(offered.shape), offered)
    floor = noise_floor.best_possible(scored, samples.product(), samples.coefficients())
    assert noise_floor.basis(scored, samples.coefficients()) == noise_floor.SIMULATION
    # Who knows the truth is rarely beaten by luck.
    assert 1 > floor["perfect_selector"].mean() > 0.99


def test_the_floor_says_that_it_knows_of_other_runs():
    data = dataclasses.replace(samples.measured(), between_runs=0.03)
    shape = len(data.problems), len(data.candidates)
    scored = ranking.score_ranking(data, np.zeros(shape), np.ones(shape, bool))
    assert noise_floor.basis(scored, None).endswith("at least 3.00 %, by which a time differs from run to run")


def test_contributions_are_the_difference_of_the_scores():
    data = samples.measured()
    trained = samples.train(data, samples.product(), samples.SMALL)
    problems, pick, best = data.problems.iloc[[3]], np.array([1]), np.array([7])
    index = np.array([0, 0]), np.array([1, 7])
    bare = dataclasses.replace(trained.model, pool=data.candidates)
    scores = bare.score_pairs(problems, *index)
    all_of_them = explain.contributions(bare, problems, data.candidates, pick, best)
    assert len(all_of_them[0]) == explain.FEATURES_OF_A_PICK
    total = sum(entry.contribution for entry in every(bare, problems, data, pick, best))
    assert total == pytest.approx(scores[0] - scores[1], abs=1e-4)


def every(model, problems, data, pick, best):
    shown, explain.FEATURES_OF_A_PICK = explain.FEATURES_OF_A_PICK, 1000
    try:
        return explain.contributions(model, problems, data.candidates, pick, best)[0]
    finally:
        explain.FEATURES_OF_A_PICK = shown
