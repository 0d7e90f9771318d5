"""Draws by name: the same for a name in any company, and fair over pairs."""

import numpy as np

from tileseer.core import draws


def test_a_draw_depends_on_its_own_names_only():
    few, many = draws.of_names(["b", "c"]), draws.of_names(["a", "b", "c"])
    np.testing.assert_array_equal(few, many[1:])
    assert draws.of_name("b") == few[0]
    np.testing.assert_array_equal(draws.of_pairs(few[:1], many[2:]), draws.of_pairs(many, many[[0, 2, 1]])[1:2])


def test_a_share_of_the_pairs_is_drawn_of_every_problem_and_of_every_candidate():
    problem, candidate = (draws.of_names(f"{what} {n}" for n in range(300)) for what in ("problem", "candidate"))
    drawn = draws.shares(draws.of_pairs(problem[:, None], candidate[None, :])) < 0.2
    for axis in (0, 1):
        of_each = drawn.mean(axis=axis)
        # Five standard deviations of a fair draw of 300.
        assert abs(of_each - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 300)
