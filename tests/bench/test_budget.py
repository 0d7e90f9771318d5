"""A budget buys the pairs that matter first."""

from __future__ import annotations

import numpy as np
import pytest

from tileseer.benchmark import budget, run
from tileseer.conv import problem
from tileseer.conv.problem import Problem
from tileseer.core.errors import UserError

SIZES = [(c, hw) for c in (16, 24, 32, 48, 64, 96) for hw in (7, 10, 14, 20, 28, 40, 56)]
PROBLEMS = problem.frame([Problem.from_dims("forward", "bf16", N=4, C=c, K=c, Hi=hw, Wi=hw) for c, hw in SIZES])
COUNT = 40


def latencies():
    """Times [problems, kernels] of a world in which neighbours like the same kernels, with some noise."""
    generator = np.random.default_rng(5)
    place = np.log2(PROBLEMS[["C", "Hi"]].to_numpy(float))
    taste = generator.uniform((4, 2.8), (6.6, 5.8), (COUNT, 2))
    distance = np.linalg.norm(place[:, None] - taste[None], axis=2)
    return np.exp(0.3 * distance + 0.05 * generator.standard_normal(distance.shape))


def found_after(pairs, times, chooser):
    """Mean efficiency of the best kernel found for each problem with so many pairs measured."""
    seen = np.full(times.shape, np.nan)
    for p, c in chooser:
        take = slice(0, max(0, pairs - np.isfinite(seen).sum()))
        seen[p[take], c[take]] = times[p[take], c[take]]
        if hasattr(chooser, "learn"):
            chooser.learn(p[take], c[take], times[p[take], c[take]])
        if np.isfinite(seen).sum() >= pairs:
            break
    best = np.nanmin(np.where(np.isnan(seen), np.inf, seen), axis=1)
    return float(np.mean(np.where(np.isinf(best), 0.0, times.min(axis=1) / best)))


def rounds(seed=1):
    p, c = (index.ravel() for index in np.indices((len(PROBLEMS), COUNT)))
    return budget.Rounds(PROBLEMS, "forward", p, c, seed)


class AtRandom:
    def __init__(self, seed):
        self._seed = seed

    def __iter__(self):
        p, c = (index.ravel() for index in np.indices((len(PROBLEMS), COUNT)))
        turn = np.random.default_rng(self._seed).permutation(len(p))
        yield p[turn], c[turn]


def test_a_fifth_of_the_pairs_finds_more_than_chance_does():
    times = latencies()
    ours = np.mean([found_after(len(SIZES) * COUNT // 5, times, rounds(seed)) for seed in range(5)])
    chance = np.mean([found_after(len(SIZES) * COUNT // 5, times, AtRandom(seed)) for seed in range(5)])
    assert 1 - ours < 0.75 * (1 - chance)


def test_every_wanted_pair_comes_exactly_once():
    p, c = np.nonzero(np.random.default_rng(1).random((len(PROBLEMS), COUNT)) < 0.4)
    chosen = [pair for a, b in budget.Rounds(PROBLEMS, "forward", p, c, 1) for pair in zip(a, b, strict=True)]
    assert sorted(chosen) == sorted(zip(p, c, strict=True))


def test_a_kernel_that_fails_is_no_reason_to_stop():
    chooser = rounds()
    total = 0
    for p, c in chooser:
        chooser.learn(p, c, np.full(len(p), np.nan))
        total += len(p)
    assert total == len(PROBLEMS) * COUNT


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("30m", 1800), ("1.5h", 5400)])
def test_budgets_are_read(text, value):
    assert budget.seconds(text) == value


@pytest.mark.parametrize("text", ["", "2", "2 h", "-1h", "0s", "h", "2d"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(UserError, match="for example 2h"):
        budget.seconds(text)


def test_interleaving_keeps_the_candidates_of_a_problem_together_in_random_order():
    p, c = (index.ravel() for index in np.indices((9, 7)))
    turn = run.interleaved(p, c, 3)
    assert sorted(turn.tolist()) == list(range(63))
    by_problem = p[turn].reshape(9, 7)
    assert (by_problem == by_problem[:, :1]).all()
    assert by_problem[:, 0].tolist() != list(range(9))
    assert len({tuple(row) for row in c[turn].reshape(9, 7)}) > 5
    assert (run.interleaved(p, c, 3) == turn).all() and (run.interleaved(p, c, 4) != turn).any()
    assert len(run.interleaved(p[:0], c[:0], 3)) == 0
