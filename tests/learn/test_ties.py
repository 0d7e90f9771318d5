"""Ties: candidates that the noise does not tell from the best of their problem."""

from __future__ import annotations

import dataclasses

import learning_samples
import numpy as np
import pytest

from tileseer.learn import noise_floor, ranking, ties, validation


def test_a_tie_is_within_two_standard_errors_of_the_difference():
    achieved = np.array([[1.0, 0.995, 0.97, 0.0], [0.99, 1.0, 0.5, 0.999]])
    alone = ties.with_best(achieved, np.zeros(achieved.shape))
    assert alone.tolist() == [[True, False, False, False], [False, True, False, False]]
    # The difference of two times with 0.4 % each has 0.57 %: 1.1 % is a tie, 3 % is none; a failure never is.
    noisy = ties.with_best(achieved, np.full(achieved.shape, 0.004))
    assert noisy.tolist() == [[True, True, False, False], [True, True, False, True]]
    assert (ties.with_best(achieved, np.full(achieved.shape, np.nan)) == alone).all()


def test_equal_kernels_are_told_apart_one_time_in_twenty():
    draw = np.random.default_rng(3)
    slower = np.exp(-np.abs(draw.normal(0, 0.01 * np.sqrt(2), 20_000)))
    achieved = np.stack([np.ones_like(slower), slower], axis=1)
    tied = ties.with_best(achieved, np.full(achieved.shape, 0.01))
    assert tied[:, 1].mean() == pytest.approx(0.95, abs=0.01)


def test_the_report_counts_ties_and_says_which_noise():
    tied = np.array([[True, True, False], [False, True, False]])
    told = ties.report_ties(tied, np.array([1, 0]), None)
    assert (told.mean_candidates, told.problems_with_several, told.picks) == (1.5, 50.0, 50.0)
    assert told.between_runs is None and "within one run" in told.meaning
    told = ties.report_ties(tied, np.array([0, 1]), 0.005)
    assert told.picks == 100.0 and told.between_runs == 0.5 and "0.50 % from run to run" in told.meaning


@pytest.fixture(scope="module")
def judged():
    """The report on a ranking by the measured times themselves, of measurements whose two runs differ by 3 %."""
    found = learning_samples.measured("forward")
    found = dataclasses.replace(found, relative_error=np.full(len(found.status), 0.03), between_runs=0.03)
    scores = np.full((len(found.problems), len(found.candidates)), -np.inf)
    ok = found.status == 0
    scores[found.problem[ok], found.candidate[ok]] = found.tflops[ok]
    return validation.report_of(
        ranking.score_ranking(found, scores, np.isfinite(scores)), learning_samples.product(), validation.Context()
    ).model_dump()


def test_every_pick_has_its_ties(judged):
    picks = judged["picks"].values()
    assert all(pick["tied"] and pick["ties"] >= 1 for pick in picks)
    assert judged["ties"]["picks"] == 100.0
    assert judged["ties"]["mean_candidates"] == pytest.approx(np.mean([pick["ties"] for pick in picks]), abs=1e-4)
    assert max(pick["ties"] for pick in picks) > 1


def test_the_floor_says_that_it_knows_of_other_runs(judged):
    assert judged["noise_floor"]["basis"].endswith("at least 3.00 %, by which a time differs from run to run")
    assert noise_floor.of_errors(np.ones((1, 1)), np.zeros((1, 1))).basis == noise_floor.ONE_RUN
