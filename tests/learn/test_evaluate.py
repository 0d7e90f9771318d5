"""Validation metrics on hand-made tables, and the refusal of a leaking split."""

import dataclasses

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest

from tileseer.core.errors import UserError
from tileseer.learn import baselines, ranking, validation
from tileseer.problems import problem
from tileseer.problems.problem import Problem

NAN = float("nan")


def report(data, scores, supported=None, context=None):
    shape = (len(data.problems), len(data.candidates))
    allowed = np.ones(shape, bool) if supported is None else np.array(supported, bool)
    scored = ranking.score_ranking(data, np.array(scores, float), allowed)
    return validation.report_of(scored, samples.product(), context or validation.Context()).model_dump()


def held_out(tflops, **kwargs):
    """A table whose first row trains and whose others validate."""
    return samples.table_of(tflops, ["train"] + ["validation"] * (len(tflops) - 1), ndim=2, **kwargs)


def test_efficiency_of_the_picks():
    data = held_out([[1, 1, 1], [100, 80, 50], [10, 40, 20], [3, 6, 2]])
    found = report(data, [[0, 0, 0], [9, 5, 1], [5, 1, 9], [1, 2, 3]])
    # Picks: 100 of 100, 20 of 40, 2 of 6.
    picks = np.array([1, 0.5, 1 / 3])
    assert found["efficiency"] == {
        "mean": round(100 * picks.mean(), 4),
        "median": 50.0,
        "p10": round(100 * np.percentile(picks, 10), 4),
        "min": 33.3333,
    }
    assert found["n_problems"] == 3
    assert found["top1"] == 33.3333
    # The best of all is among the first two of problem 3 and the last of problem 2.
    assert found["top3"] == found["top5"] == 100.0
    assert found["efficiency_best_of_3"]["mean"] == 100.0
    assert found["within_2_percent"] == 33.3333
    assert found["below_80_percent"] == 66.6667


def test_best_of_three_looks_at_three():
    data = held_out([[1] * 5, [10, 20, 30, 40, 50], [50, 40, 30, 20, 10]])
    found = report(data, [[0] * 5, [5, 4, 3, 2, 1], [5, 4, 3, 2, 1]])
    assert found["efficiency_best_of_3"]["mean"] == 80.0
    assert found["top3"] == 50.0
    assert found["top5"] == 100.0


@pytest.mark.parametrize(
    ("tflops", "scores", "supported", "mean"),
    [
        pytest.param([[NAN, 40], [30, 30]], [[9, 1], [1, 2]], None, 50.0, id="a pick without a time counts zero"),
        pytest.param([[NAN, 40]], [[9, 1]], [[0, 1]], 100.0, id="an unsupported candidate is not picked"),
        pytest.param([[20, 40], [20, 40]], [[9, 1], [1, 9]], [[0, 0], [1, 1]], 50.0, id="no candidate counts zero"),
        pytest.param([[NAN, NAN], [20, 40]], [[9, 1], [1, 9]], None, 100.0, id="nothing ran is not scored"),
    ],
)
def test_what_counts(tflops, scores, supported, mean):
    found = report(held_out([[1, 1], *tflops]), [[0, 0], *scores], supported and [[1, 1], *supported])
    assert found["efficiency"]["mean"] == mean and found["device_kind"] == "simulated"
    without = sum(np.isnan(row).all() for row in tflops)
    assert (found["n_problems"], found["n_without_measurement"]) == (len(tflops) - without, without)
    if supported:
        assert found["mean_pool_size"] == np.mean(np.sum(supported, axis=1))


@pytest.mark.parametrize("status", ["crash", "run_timeout", "wrong_result", "throttled"])
def test_a_pick_that_failed_counts_zero(status):
    data = held_out([[1, 1], [50, 40]], statuses={(1, 0): status})
    assert report(data, [[0, 0], [9, 1]])["efficiency"]["mean"] == 0.0
    assert report(data, [[0, 0], [1, 9]])["efficiency"]["mean"] == 100.0


@pytest.mark.parametrize(("split", "message"), [("train", "validation"), ("validation", "split train")])
def test_nothing_to_validate_or_to_choose_the_baselines_on_is_a_user_error(split, message):
    with pytest.raises(UserError, match=message):
        report(samples.table_of([[1, 2]], split, ndim=2), np.zeros((1, 2)))


def test_training_problems_are_not_scored():
    good, bad = [[9, 1], [1, 9]], [[1, 9], [1, 9]]
    data = held_out([[50, 1], [20, 40]])
    assert report(data, good)["efficiency"] == report(data, bad)["efficiency"]


def test_the_best_single_kernel_is_chosen_on_training_problems_alone():
    # Candidate 0 wins in training, candidate 1 in validation.
    data = samples.table_of(
        [[10, 9], [10, 8], [1, 10], [2, 10]], ["train", "train", "validation", "validation"], ndim=2
    )
    baseline = report(data, np.zeros((4, 2)))["baselines"]["best_single_kernel"]
    assert baseline["candidates"] == {"2d": data.candidates["candidate"][0]}
    assert baseline["efficiency"]["mean"] == 15.0


def test_the_fixed_order_falls_back_where_its_first_kernel_cannot_run():
    split = ["train", "train", "train", "validation", "validation"]
    data = samples.table_of([[10, 9, 1], [10, 9, 1], [NAN, 1, 10], [10, 5, 1], [NAN, 5, 10]], split, ndim=2)
    supported = [[1, 1, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1], [0, 1, 1]]
    found = report(data, np.zeros((5, 3)), supported=supported)["baselines"]
    assert found["best_single_kernel"]["efficiency"]["mean"] < found["fixed_order"]["efficiency"]["mean"] == 100.0


def test_a_layer_counts_for_every_network_that_has_it():
    data = held_out([[1, 1], [10, 20]])
    key, own = data.problems["problem_key"].iloc[1], data.problems["network"].iloc[1]
    table = {"problem_key": [key], "network": ["other"], "run": ["r"], "layer": ["l"], "occurrences": [1],
             "flop_share": [1.0], "nearest_training": [1.0]}  # fmt: skip
    context = validation.Context(uses=pd.DataFrame(table), training_networks=["other"])
    found = report(data, np.zeros((2, 2)), context=context)["by_network"]
    assert {name: part["n_problems"] for name, part in found.items()} == {own: 1, "other": 1}
    assert found["other"]["in_training"]


def test_the_random_choice_is_an_expectation():
    data = held_out([[1, 1, 1], [10, 20, 40]])
    baseline = report(data, np.zeros((2, 3)), supported=[[1, 1, 1], [1, 0, 1]])["baselines"]["random_supported"]
    assert baseline["efficiency"]["mean"] == 62.5


def test_the_hand_rule_prefers_large_tiles_on_large_problems_and_small_ones_on_small():
    data = samples.measured()
    rows = np.arange(len(data.problems))
    score = baselines.hand_rule(data, rows, samples.product())
    area = (data.candidates["tile_m"] * data.candidates["tile_n"]).to_numpy()
    sizes = data.problems["N"] * data.problems["Hi"] * data.problems["Wi"] * data.problems["K"]
    assert area[np.argmax(score[sizes.argmax()])] > area[np.argmax(score[sizes.argmin()])]


def test_strata_add_up():
    data = samples.measured()
    shape = (len(data.problems), len(data.candidates))
    found = report(data, np.random.default_rng(0).random(shape))
    for strata in (found["by_ndim"], found["by_network"]):
        count = sum(part["n_problems"] for part in strata.values())
        total = sum(part["n_problems"] * part["efficiency"]["mean"] for part in strata.values())
        assert count == found["n_problems"]
        assert total / count == pytest.approx(found["efficiency"]["mean"], abs=1e-3)
    assert set(found["by_ndim"]) == {"2d", "3d"}
    assert set(found["by_network"]) == {"net1"}


def test_the_worst_picks_come_first_with_what_was_picked_and_what_was_best():
    data = held_out([[1, 1], [20, 40], [40, 30]])
    worst = report(data, [[0, 0], [9, 1], [1, 9]])["worst"]
    assert [entry["efficiency"] for entry in worst] == [50.0, 75.0]
    names = data.candidates["candidate"]
    assert (worst[0]["pick"], worst[0]["best"]) == (names[0], names[1])
    assert worst[0]["problem_key"] == data.problems["problem_key"][1]


@pytest.mark.parametrize("column", ["problem_key", "layer_family"])
def test_a_validation_problem_that_was_trained_on_is_refused(column):
    data = held_out([[1, 1], [20, 40]])
    leaking = data.problems.copy()
    leaking.loc[1, column] = leaking.loc[0, column]
    with pytest.raises(UserError, match=column):
        report(dataclasses.replace(data, problems=leaking), np.zeros((2, 2)))


def test_kinds_of_layers():
    dims = {
        "depthwise": {"C": 32, "K": 32, "G": 32, "Y": 3, "X": 3},
        "grouped": {"C": 64, "K": 64, "G": 4},
        "dilated": {"C": 64, "K": 64, "Y": 3, "X": 3, "dilation_h": 2},
        "few channels": {"C": 3, "K": 64, "Y": 7, "X": 7, "stride_h": 2},
        "pointwise": {"C": 64, "K": 64},
        "strided": {"C": 64, "K": 64, "stride_w": 2},
        "3x3": {"C": 64, "K": 64, "Y": 3, "X": 3},
        "other filters": {"C": 64, "K": 64, "Y": 1, "X": 7},
    }
    table = problem.problem_frame(
        [Problem.from_dims("forward", "bf16", Hi=20, Wi=20, **kind) for kind in dims.values()]
    )
    assert validation.layer_kinds(table).tolist() == list(dims)
