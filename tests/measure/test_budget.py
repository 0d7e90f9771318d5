"""The orders of measuring."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from tileseer.config.benchmark import BenchmarkSettings
from tileseer.measure import batch


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("0.5h", 1800)])
def test_budgets_are_read(text, seconds):
    assert BenchmarkSettings(budget=text).budget_s == seconds


@pytest.mark.parametrize("text", ["", "2", "2 h", "-1h", "0s", "0.0h", "h", "2d"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(ValidationError, match="budget"):
        BenchmarkSettings(budget=text)


def draw(p, c, seed, in_rounds):
    turn = batch.draw_order(p, c, seed, in_rounds)
    assert sorted(turn.tolist()) == list(range(len(p)))
    assert (batch.draw_order(p, c, seed, in_rounds) == turn).all()
    assert (batch.draw_order(p, c, seed + 1, in_rounds) != turn).any()
    assert len(batch.draw_order(p[:0], c[:0], seed, in_rounds)) == 0
    return turn


def test_under_a_budget_every_problem_has_its_pairs_in_turn():
    p, c = np.nonzero(np.random.default_rng(1).random((9, 40)) < 0.4)
    turn = draw(p, c, 3, in_rounds=True)
    for share in (9, 45, 90):
        counts = np.bincount(p[turn[:share]], minlength=9)
        assert counts.max() - counts.min() <= 1
    assert len({c[turn[p[turn] == problem]][0] for problem in range(9)}) > 3


def test_the_candidates_of_a_problem_stay_together_in_random_order():
    p, c = (index.ravel() for index in np.indices((9, 7)))
    turn = draw(p, c, 3, in_rounds=False)
    by_problem = p[turn].reshape(9, 7)
    assert (by_problem == by_problem[:, :1]).all()
    assert by_problem[:, 0].tolist() != list(range(9))
    assert len({tuple(row) for row in c[turn].reshape(9, 7)}) > 5
