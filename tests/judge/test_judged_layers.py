"""Figures of groups of judged layers, and what is possible: against cases whose answer is known."""

import dataclasses

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest

from tileseer.judge.figures import figures, groups, harm, interval_of_mean
from tileseer.judge.layers import LAYERS, best_possible, judged_layers, noise_basis, read_layers, write_layers
from tileseer.judge.ranking import score_ranking
from tileseer.learn.evidence import NOTHING_LEARNT
from tileseer.measure.simulated_device import SimulatedDevice


def test_an_interval_of_equal_values_is_a_point_and_of_others_holds_the_figure():
    assert interval_of_mean(np.full(20, 0.5)) == [50.0, 50.0]
    values = np.random.default_rng(0).random(400)
    low, high = interval_of_mean(values)
    assert low < 100 * values.mean() < high
    # The standard error of a mean of 400 uniform values is 1.44 points; 95 % is 1.96 of it on either side.
    assert high - low == pytest.approx(2 * 1.96 * 1.44, rel=0.1)
    assert interval_of_mean(values) == [low, high]


def test_without_noise_everything_is_possible():
    measured = np.array([[1.0, 0.9, 0.0], [0.5, 1.0, 0.7]])
    np.testing.assert_allclose(best_possible(measured, np.zeros_like(measured)), 1.0)


def test_noise_lowers_what_is_possible_more_in_a_larger_pool_of_equals():
    def perfect(width):
        # Many equal problems: the mean is that of the law, not of one draw.
        measured = np.ones((200, width))
        return best_possible(measured, np.full_like(measured, 0.02)).mean()

    few, many = perfect(2), perfect(60)
    # Of two equals, the luckier is ahead of a given one by 0.02 / sqrt(pi) on average.
    assert 1 - few == pytest.approx(0.02 / np.sqrt(np.pi), rel=0.15)
    assert many < few - 0.02


def table(data, truth=None):
    """The judged layers of the small world, where nothing is told apart."""
    offered = data.grid(np.arange(len(data.problems))) > 0
    scored = score_ranking(data, np.zeros(offered.shape), offered, learnt=NOTHING_LEARNT)
    uses = pd.DataFrame({"problem_key": [], "occurrences": []})
    return judged_layers(scored, samples.MI355X, uses, pd.DataFrame(), truth)


def test_of_the_simulator_what_is_possible_is_exact():
    truth = SimulatedDevice(samples.MI355X, samples.COEFFICIENTS, seed=0).truth_us
    # Who knows the truth is rarely beaten by luck.
    assert 1 > table(samples.measured(), truth)["possible"].mean() > 0.99


def test_what_is_possible_is_not_known_where_nobody_timed_twice():
    data = samples.measured()
    found = table(data)
    assert np.isnan(data.relative_error).all() and found["possible"].isna().all()
    assert figures(found).possible is None and figures(found).sum_possible is None
    assert noise_basis(data, None).startswith("not known")
    # A single time without an error is as uncertain as the others.
    measured, error = np.ones((500, 4)), np.full((500, 4), 0.05)
    assert best_possible(measured, np.where(np.arange(4) == 3, np.nan, error)).mean() == pytest.approx(
        best_possible(measured, error).mean()
    )


def timed(best_us, efficiency, alone, uses=1.0, own=np.nan):
    """Layers with these times of the fastest, and efficiencies of the pick and of a fixed order."""
    rows = pd.DataFrame({"best_us": np.array(best_us, float), "efficiency": efficiency, "fixed_order": alone})
    pick_us = rows["best_us"] / rows["efficiency"].replace(0.0, np.nan)
    return rows.assign(
        uses=uses, own_choice=own, possible=1.0, pick_us=pick_us, estimated_us=np.nan, efficiency_of_2=1.0,
        efficiency_of_3=1.0, random_supported=0.5, hand_rule=np.nan,
    )  # fmt: skip


def test_the_sum_of_times_and_the_longest_layers_count_time():
    # Eleven layers of 100 us with perfect picks, one of 30 us whose pick takes 441, a short one whose pick failed.
    found = figures(timed([100] * 11 + [30, 1], [1] * 11 + [30 / 441, 0], [0.5] * 13))
    assert found.sum_over_best == round((1100 + 300 + 10) / 1131, 4)  # ten times the fastest is the most that counts
    assert found.sum_possible == 1.0 and found.sum_without_model == 2.0
    assert found.worst_of_longest == 10.0 and found.lost_in_longest == pytest.approx(100 * 270 / 279, abs=1e-3)
    assert found.harmed == pytest.approx(100 * 2 / 13, abs=1e-3) and found.harm_factor == round(310 / 62, 4)
    # With uses: the long layer is one that networks need seldom.
    uses = np.array([100.0] * 11 + [1, 1])
    assert figures(timed([100] * 11 + [30, 1], [1] * 11 + [30 / 441, 0], [0.5] * 13, uses)).worst_of_longest == 1.0


def test_layers_that_no_network_uses_take_no_time_and_tables_of_several_operations_are_one():
    rows = timed([10, 20], [0.5, 1.0], [0.5, 0.5], uses=0.0)
    found = figures(rows)
    assert (found.sum_over_best, found.worst_of_longest, found.lost_in_longest) == (1.0, 2.0, 0.0)
    many = figures(pd.concat([timed([10, 20], [0.5, 1.0], [0.5, 0.5])] * 20))
    assert many.sum_over_best == round(40 / 30, 4) and many.lost_in_longest == 25.0 and many.worst_of_longest == 2.0


def test_harm_is_against_the_own_choice_of_a_library_that_has_one():
    found = figures(timed([10, 10], [0.8, 0.8], [0.5, 0.5], own=[1.0, 0.8]))
    assert (found.harmed, found.harm_factor, found.sum_without_model) == (50.0, 1.25, 1.125)
    assert figures(timed([10, 10], [0.8, 0.8], [0.5, 0.5])).harmed == 0.0


def test_what_is_possible_says_what_it_knows_of_other_runs():
    data, known = samples.measured(), np.full(len(samples.measured().problem), 0.03)
    data = dataclasses.replace(data, between_runs=0.03, between_source="two boards", relative_error=known)
    words = "at least 3.00 %, by which a time differs from run to run (two boards)"
    assert noise_basis(data, None).endswith(words) and figures(table(data)).possible.mean < 100


def test_a_table_is_written_and_read_whole(tmp_path):
    made = table(samples.measured()).assign(**{"us of cuDNN": 2.0})
    write_layers(tmp_path / "layers.parquet", made)
    read = read_layers(tmp_path / "layers.parquet")
    assert [*read] == [*LAYERS.names, "us of cuDNN"] and figures(read) == figures(made)
    pd.testing.assert_frame_equal(read, made, check_dtype=False)


def beside_own(own, picked, kinds):
    """Layers of which own choice and pick have these efficiencies; equal ones are the same candidate."""
    with np.errstate(divide="ignore"):
        table = pd.DataFrame({"efficiency": picked, "best_us": 1.0, "own_us": 1 / own, "kind": kinds, "own": "own"})
    return table.assign(pick=np.where(picked == own, "own", "other"))


def test_harm_is_counted_by_kind_against_the_own_choice():
    own = np.full(200, 0.5)
    picked = own.copy()
    picked[:100] = 1.0
    # One pick of the second kind takes 1.25 times as long as the own choice.
    picked[150] = 0.4
    kinds = np.repeat(["3x3", "grouped"], 100)
    layers = beside_own(own, picked, kinds)
    (_, good), (_, bad) = ((name, harm(rows)) for name, rows in groups(layers, "kind"))
    assert (harm(layers).layers, good.layers, bad.layers) == (200, 100, 100)
    assert (good.replaced, good.gained, good.slower, good.slowest) == (100, 100, 0, 1 / 2)
    assert (bad.replaced, bad.slower, bad.slowest) == (1, 1, 1.25)
    picked[151] = 0.0
    assert harm(beside_own(own, picked, kinds)).slowest > 100
    # Without room nothing is gained.
    assert harm(beside_own(np.ones(3), np.ones(3), "3x3")).gained is None
