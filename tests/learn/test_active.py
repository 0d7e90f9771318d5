"""Active measuring: the budget, determinism, resuming, and that it learns what is fast."""

import dataclasses

import learning_samples as samples
import numpy as np
import pyarrow as pa
import pytest

from tileseer.learn import active as stage
from tileseer.learn import active_choice as choice
from tileseer.measure import chosen_pairs

SETTINGS = choice.ActivePlan(budget=0.5, first=0.2, rounds=4, stable=0.0)


@pytest.fixture(scope="module")
def world():
    data = samples.measured()
    rows = np.flatnonzero(data.ok & data.trains[data.problem])
    return data.only(rows), data.tflops[rows]


def run(world, settings=SETTINGS):
    pool, tflops = world
    return choice.choose_rounds(pool, samples.product(), settings, lambda rows: tflops[rows])


@pytest.mark.parametrize("budget", [0.1, 0.15, 0.33, 1.0])
def test_no_pair_twice_and_the_budget_is_kept(world, budget):
    rounds = run(world, choice.ActivePlan(budget=budget, first=0.06, rounds=4, stable=-1.0))
    chosen = np.concatenate([one.pairs for one in rounds])
    assert len(set(chosen.tolist())) == len(chosen)
    assert len(chosen) <= budget * len(world[1])
    assert len(chosen) > 0.5 * budget * len(world[1])


def test_the_same_times_give_the_same_rounds(world):
    first, again = run(world), run(world)
    assert [one.pairs.tolist() for one in first] == [one.pairs.tolist() for one in again]


def test_later_rounds_depend_on_what_was_measured(world):
    pool, tflops = world
    slower = np.random.default_rng(0).permutation(tflops)
    first, other = run(world), run((pool, slower))
    assert first[0].pairs.tolist() == other[0].pairs.tolist()
    assert first[1].pairs.tolist() != other[1].pairs.tolist()


def test_the_first_round_does_not_depend_on_the_order_of_the_candidates(world):
    pool, _ = world
    order = np.random.default_rng(0).permutation(len(pool.candidates))
    place = np.argsort(order)
    moved = dataclasses.replace(pool, candidates=pool.candidates.iloc[order], candidate=place[pool.candidate])
    names = pool.candidates["candidate"].to_numpy()
    chosen = choice.design(pool, 60, seed=1)
    other = choice.design(moved, 60, seed=1)
    assert chosen.tolist() == other.tolist()
    assert (names[pool.candidate[chosen]] == names[order][moved.candidate[other]]).all()
    assert chosen.tolist() != choice.design(pool, 60, seed=2).tolist()


def test_what_is_measured_later_is_faster_than_a_draw(world):
    relative = world[0].efficiency
    first, *later = run(world)
    assert relative[np.concatenate([one.pairs for one in later])].mean() > relative[first.pairs].mean() + 0.03


def test_it_stops_when_picks_stop_changing(world):
    patient = run(world, choice.ActivePlan(budget=1.0, first=0.2, rounds=8, stable=0.0))
    hasty = run(world, choice.ActivePlan(budget=1.0, first=0.2, rounds=8, stable=1.0))
    assert len(hasty) < len(patient)


def led(world, budget, tflops=None, **more):
    pool, known = world
    known = known if tflops is None else tflops
    plan = choice.ActivePlan(budget=budget, rounds=4, stable=-1.0, **more)
    return choice.choose_rounds(pool, samples.product(), plan, lambda rows: known[rows], samples.coefficients())


@pytest.mark.parametrize("budget", [0.02, 0.1, 0.5, 1.0])
def test_a_formula_leads_to_the_fastest_pairs_within_the_budget(world, budget):
    pool, tflops = world
    relative = pool.efficiency
    rounds = led(world, budget)
    chosen = np.concatenate([one.pairs for one in rounds])
    assert len(set(chosen.tolist())) == len(chosen) <= budget * len(tflops)
    assert len(chosen) > 0.9 * budget * len(tflops) - 4
    # The simulated device nearly is the formula: what it finds fastest is fast. As many more are drawn.
    drawn = choice.design(pool, choice.DRAWN * int(budget * len(tflops)), seed=1)
    by_formula = np.setdiff1d(rounds[0].pairs, drawn)
    assert set(drawn.tolist()) <= set(rounds[0].pairs.tolist())
    assert len(by_formula) == int(choice.LED * int(budget * len(tflops)))
    if budget <= 0.1:
        assert relative[by_formula].mean() > 0.85 > relative.mean()


def test_rounds_leave_the_formula_where_the_times_say_otherwise(world):
    pool, tflops = world
    slow = pool.candidates["pipeline"].to_numpy()[pool.candidate] == "compv3"
    tampered = np.where(slow, 0.2, 1.0) * tflops

    def slow_later(times):
        return slow[np.concatenate([one.pairs for one in led(world, 0.4, times)[1:]])].mean()

    assert slow_later(tampered) < slow_later(tflops)


def test_failing_pairs_are_not_asked_for_again(world):
    pool, tflops = world
    broken = np.where(pool.candidate % 3 == 0, np.nan, tflops)
    chosen = np.concatenate([one.pairs for one in run((pool, broken))])
    assert len(set(chosen.tolist())) == len(chosen)


def test_a_pool_of_which_the_first_share_is_no_pair_is_measured_all_the_same(world):
    tflops = world[1]
    rounds = run(world, choice.ActivePlan(budget=0.5, first=0.5 / len(tflops), rounds=4, stable=0.0))
    assert not len(rounds[0].pairs) and 0 < sum(len(one.pairs) for one in rounds) <= 0.5 * len(tflops)


def test_a_device_on_which_every_pair_fails_ends_the_budget_without_a_model(world):
    pool, tflops = world
    chosen = np.concatenate([one.pairs for one in run((pool, np.full(len(tflops), np.nan)))])
    assert len(set(chosen.tolist())) == len(chosen)


def test_chosen_pairs_and_validation_problems_are_wanted_and_nothing_else():
    pairs = pa.table(
        {
            "kernel_id": ["a", "a", "b", "b", "b"],
            "split_k": pa.array([1, 1, 1, 1, 2], pa.int32()),
            "problem_key": ["p", "v", "p", "v", "p"],
            "rule": ["", "", "", "groups_divide", ""],
        }
    )
    problems = pa.table({"problem_key": ["p", "v"], "split": ["train", "validation"]})
    rounds = [choice.Round(np.array([0]), None)]
    of_pool = pairs.select(["kernel_id", "split_k", "problem_key"]).filter(pa.array([False, False, True, False, True]))
    chosen = stage.chosen_table(rounds, of_pool)
    assert chosen_pairs.pairs_to_measure(pairs, problems, chosen).to_pylist() == [False, True, True, False, False]
    assert chosen_pairs.pairs_to_measure(pairs, problems, None).to_pylist() == [True, True, True, False, True]
    assert chosen_pairs.read_record(chosen).model_dump() == {
        "supported_training_pairs": 2, "rounds": [{"pairs": 1, "picks_changed": None}],
    }  # fmt: skip
