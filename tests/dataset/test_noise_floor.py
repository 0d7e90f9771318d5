"""The noise floor, intervals, and what explains a bad pick: against cases whose answer is known."""

import dataclasses

import learning_samples as samples
import numpy as np
import pytest

from tileseer.learn import efficiency, explain, noise_floor, ranking, validation
from tileseer.learn.validation import Context


def test_an_interval_of_equal_values_is_a_point_and_of_others_holds_the_figure():
    assert efficiency.intervals(np.full(20, 0.5)) == {"mean": [50.0, 50.0], "median": [50.0, 50.0], "p10": [50.0, 50.0]}
    values = np.random.default_rng(0).random(400)
    low, high = efficiency.intervals(values)["mean"]
    assert low < 100 * values.mean() < high
    # The standard error of a mean of 400 uniform values is 1.44 points; 95 % is 1.96 of it on either side.
    assert high - low == pytest.approx(2 * 1.96 * 1.44, rel=0.1)
    assert efficiency.intervals(values) == efficiency.intervals(values)


def test_the_block_of_resampling_does_not_change_what_is_drawn(monkeypatch):
    values = np.random.default_rng(0).random(50)
    whole = efficiency.intervals(values)
    monkeypatch.setattr(efficiency, "_BLOCK", 50 * 2000)
    assert efficiency.intervals(values) == whole


def test_without_noise_the_floor_is_perfect_and_nothing_is_corrected():
    measured = np.array([[1.0, 0.9, 0.0], [0.5, 1.0, 0.7]])
    floor = noise_floor.of_errors(measured, np.zeros_like(measured))
    np.testing.assert_allclose(floor.selectors()["perfect_selector"], 1.0)
    np.testing.assert_allclose(floor.true, measured)
    assert set(floor.first) == {"perfect_selector"}


def test_noise_lowers_the_floor_more_in_a_larger_pool_of_equals():
    def perfect(width):
        # Many equal problems: the mean is that of the law, not of one draw.
        measured = np.ones((200, width))
        return noise_floor.of_errors(measured, np.full_like(measured, 0.02)).selectors()["perfect_selector"].mean()

    few, many = perfect(2), perfect(60)
    # Of two equals, the luckier is ahead of a given one by 0.02 / sqrt(pi) on average.
    assert 1 - few == pytest.approx(0.02 / np.sqrt(np.pi), rel=0.15)
    assert many < few - 0.02


def test_the_winners_curse_is_corrected_in_the_right_direction():
    measured = np.tile([1.0] * 30, (100, 1))
    floor = noise_floor.of_errors(measured, np.full_like(measured, 0.02))
    # Nobody is really ahead, so against the corrected best each pick is as good as the best.
    assert (floor.true == 1.0).all()
    far = noise_floor.of_errors(np.array([[1.0, 0.5]]), np.full((1, 2), 0.02))
    np.testing.assert_allclose(far.true, [[1.0, 0.5]], atol=0.02)


@pytest.fixture(scope="module")
def simulated():
    data = samples.measured()
    offered = data.grid(np.arange(len(data.problems))) > 0
    scored = ranking.score_ranking(data, np.zeros(offered.shape), offered)
    return noise_floor.of_simulation(scored, samples.product(), samples.coefficients()), scored.achieved


def test_of_the_simulator_the_floor_is_exact(simulated):
    floor, measured = simulated
    solvable = measured.max(axis=1) > 0
    assert (floor.true[solvable].max(axis=1) == 1.0).all()
    # Who knows the truth is rarely beaten by luck, who does not know the single pair's deviation loses more.
    assert floor.selectors()["perfect_selector"][solvable].mean() > floor.selectors()["perfect_model"][solvable].mean()
    assert floor.selectors()["perfect_selector"][solvable].mean() > 0.99
    picked = floor.true[solvable].argmax(axis=1)
    perfect = floor.selectors()["perfect_selector"]
    np.testing.assert_array_equal(measured[solvable][np.arange(len(picked)), picked], perfect[solvable])


def test_more_picks_of_a_selector_are_never_worse_and_a_small_pool_ends_with_its_best(simulated):
    floor, _ = simulated
    assert floor.first["perfect_selector"].shape[1] == floor.first["perfect_model"].shape[1] == noise_floor.FIRST
    assert (np.diff(floor.first["perfect_model"], axis=1) >= 0).all()
    assert floor.selectors(3)["perfect_model"].mean() > floor.selectors()["perfect_model"].mean()
    two = noise_floor.of_errors(np.array([[0.5, 1.0]]), np.zeros((1, 2)))
    np.testing.assert_allclose(two.first["perfect_selector"], np.ones((1, noise_floor.FIRST)))


def test_noise_of_equals_matters_less_to_who_may_time_several():
    measured = np.ones((200, 60))
    floor = noise_floor.of_errors(measured, np.full_like(measured, 0.02))
    one, three = (floor.selectors(first)["perfect_selector"].mean() for first in (1, 3))
    assert one + 0.005 < three < 1.0


def test_the_report_has_floors_intervals_and_reasons():
    data = samples.measured()
    trained = samples.train(data, samples.product(), samples.SMALL)
    model = trained.model
    found = validation.validate_model(model, data, Context(samples.coefficients())).model_dump()
    floors = found["noise_floor"]
    assert floors["perfect_selector"]["efficiency"]["mean"] > floors["perfect_model"]["efficiency"]["mean"]
    for part in (found, found["by_ndim"]["2d"], floors["perfect_model"]):
        low, high = part["interval"]["mean"]
        assert low <= part["efficiency"]["mean"] <= high
    assert sum(part["n_problems"] for part in found["by_layer_kind"].values()) == found["n_problems"]
    assert found["oracle"]["mean_coverage"] > 95
    perfect_model = floors["perfect_model"]
    for baseline in found["baselines"].values():
        assert baseline["noise_floor"]["perfect_model"] == perfect_model["efficiency"]
    assert perfect_model["efficiency_best_of_5"]["mean"] >= perfect_model["efficiency_best_of_3"]["mean"]
    # A pick that is the best has nothing to explain; others have.
    assert all(bool(entry["spoke_for_the_pick"]) == (entry["pick"] != entry["best"]) for entry in found["worst"])


def test_contributions_are_the_difference_of_the_scores():
    data = samples.measured()
    trained = samples.train(data, samples.product(), samples.SMALL)
    problems, pick, best = data.problems.iloc[[3]], np.array([1]), np.array([7])
    index = np.array([0, 0]), np.array([1, 7])
    bare = dataclasses.replace(trained.model, pool=data.candidates)
    scores = bare.score_pairs(problems, *index)
    all_of_them = explain.contributions(bare, problems, data.candidates, pick, best)
    assert len(all_of_them[0]) == explain.SHOWN
    total = sum(entry.contribution for entry in every(bare, problems, data, pick, best))
    assert total == pytest.approx(scores[0] - scores[1], abs=1e-4)


def every(model, problems, data, pick, best):
    shown, explain.SHOWN = explain.SHOWN, 1000
    try:
        return explain.contributions(model, problems, data.candidates, pick, best)[0]
    finally:
        explain.SHOWN = shown


def test_what_all_training_problems_share_says_nothing_of_distances():
    problems = samples.measured().problems
    training = problems[problems["split"] == "train"].assign(N=6)
    wider = training.iloc[[4]].assign(C=2 * training["C"].iloc[4])
    assert 0 < explain.Novelty(training, wider, samples.features()).percentile(0) < 100


def test_a_problem_far_from_training_is_said_to_be_so():
    data = samples.measured()
    training = data.problems[data.problems["split"] == "train"]
    far = data.problems.iloc[[3]].assign(C=100_000, K=7)
    same = training.iloc[[4]]
    novelty = explain.Novelty(training, far, samples.features())
    assert novelty.percentile(0) == 100
    assert any(text.startswith("C 100000, trained on 32 to 256") for text in novelty.outside(0))
    known = explain.Novelty(training, same, samples.features())
    assert known.nearest(0) == 4 and known.outside(0) == []
