"""The orders of measuring."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from tileseer.facts.benchmark import BenchmarkSettings
from tileseer.measure import benchmark


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("0.5h", 1800)])
def test_budgets_are_read(text, seconds):
    assert BenchmarkSettings(budget=text).budget_s == seconds


@pytest.mark.parametrize("text", ["", "2", "2 h", "-1h", "0s", "0.0h", "h", "2d"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(ValidationError, match="budget"):
        BenchmarkSettings(budget=text)


def test_any_beginning_of_the_order_has_whole_problems_of_both_splits():
    p, c = (index.ravel() for index in np.indices((9, 7)))
    held_out = np.arange(9) >= 6
    turn = benchmark.draw_order(p, c, held_out, 3)
    assert sorted(turn.tolist()) == list(range(63))
    by_problem = p[turn].reshape(9, 7)
    assert (by_problem == by_problem[:, :1]).all()
    order = by_problem[:, 0]
    assert order.tolist() != list(range(9))
    # Those for validation are spread evenly among the others.
    assert [held_out[order[i : i + 3]].sum() for i in (0, 3, 6)] == [1, 1, 1]
    assert len({tuple(row) for row in c[turn].reshape(9, 7)}) > 5
    assert (benchmark.draw_order(p, c, held_out, 3) == turn).all()
    assert (benchmark.draw_order(p, c, held_out, 4) != turn).any()
    assert len(benchmark.draw_order(p[:0], c[:0], held_out, 3)) == 0
    # The kernels of another chunk are measured on the same problems first.
    few = c < 2
    other = benchmark.draw_order(p[few], c[few], held_out, 3)
    assert p[few][other].reshape(9, 2)[:, 0].tolist() == order.tolist()
