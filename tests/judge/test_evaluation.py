"""How good picks are: by layer, by network, with what no candidate can run and beside other libraries."""

import dataclasses

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from published_models import context, evaluation

from tileseer.core.errors import UserError
from tileseer.judge import baselines, ranking
from tileseer.judge.evaluation import LayerEvaluation, evaluate
from tileseer.judge.verdict import faults, next_step, verdict_words
from tileseer.learn.model_schema import Summary

NAN = float("nan")
GOOD = Summary(mean=99.0, median=100.0, p10=98.0, min=90.0)


def held_out(tflops, **kwargs):
    """A table whose first row trains and whose others validate."""
    return samples.table_of(tflops, ["train"] + ["validation"] * (len(tflops) - 1), ndim=2, **kwargs)


def judged(data, scores, supported=None, **about):
    """Evaluate the picks of a ranking."""
    shape = (len(data.problems), len(data.candidates))
    allowed = np.ones(shape, bool) if supported is None else np.array(supported, bool)
    scored = ranking.score_ranking(data, np.array(scores, float), allowed)
    return evaluate(scored, samples.MI355X, context(**about))[0]


def test_efficiency_of_the_picks():
    data = held_out([[1, 1, 1], [100, 80, 50], [10, 40, 20], [3, 6, 2]])
    found = judged(data, [[0, 0, 0], [9, 5, 1], [5, 1, 9], [1, 2, 3]])
    # Picks: 100 of 100, 20 of 40, 2 of 6.
    picks = np.array([1, 0.5, 1 / 3])
    assert found.efficiency.model_dump() == {
        "mean": round(100 * picks.mean(), 4),
        "median": 50.0,
        "p10": round(100 * np.percentile(picks, 10), 4),
        "min": 33.3333,
    }
    # The best of all is among the first two of problem 3 and the last of problem 2.
    assert (found.layers, found.best_of_3.mean, found.within_2_percent) == (3, 100.0, 33.3333)
    assert found.best_of_2.mean == pytest.approx(100 * (1 + 0.5 + 1) / 3, abs=1e-3)
    low, high = found.interval
    assert low <= found.efficiency.mean <= high
    worst = found.worst_layer
    assert (worst.efficiency, worst.layer) == (33.3333, data.problems["layer"].iloc[3])
    assert "picks for 3 unseen layers have efficiency 61.1 % (mean; " in found.summary


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
    found = judged(held_out([[1, 1], *tflops]), [[0, 0], *scores], supported and [[1, 1], *supported])
    assert found.efficiency.mean == mean
    without = sum(np.isnan(row).all() for row in tflops)
    assert (found.layers, found.without_candidate) == (len(tflops) - without, without)


@pytest.mark.parametrize("status", ["crash", "wrong_result"])
def test_a_pick_that_failed_counts_zero(status):
    data = held_out([[1, 1], [50, 40]], statuses={(1, 0): status})
    uses = [use(data.problems["problem_key"].iloc[1], "net", 1)]
    failed, ran = (judged(data, [[0, 0], scores], uses=uses) for scores in ([9, 1], [1, 9]))
    assert (failed.efficiency.mean, failed.networks[0].failed) == (0.0, 1)
    assert (ran.efficiency.mean, ran.networks[0].failed) == (100.0, 0)


@pytest.mark.parametrize(("split", "message"), [("train", "validation"), ("validation", "split train")])
def test_nothing_to_judge_or_to_choose_the_baselines_on_is_a_user_error(split, message):
    with pytest.raises(UserError, match=message):
        judged(samples.table_of([[1, 2]], split, ndim=2), np.zeros((1, 2)))


def test_the_fixed_order_is_chosen_on_training_problems_alone():
    # Candidate 0 wins in training, candidate 1 in validation.
    data = samples.table_of(
        [[10, 9], [10, 8], [1, 10], [2, 10]], ["train", "train", "validation", "validation"], ndim=2
    )
    baseline = judged(data, np.zeros((4, 2))).baselines["fixed_order"]
    assert baseline.efficiency.mean == 15.0


def test_the_fixed_order_falls_back_where_its_first_kernel_cannot_run():
    split = ["train", "train", "train", "validation", "validation"]
    data = samples.table_of([[10, 9, 1], [10, 9, 1], [NAN, 1, 10], [10, 5, 1], [NAN, 5, 10]], split, ndim=2)
    supported = [[1, 1, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1], [0, 1, 1]]
    found = judged(data, np.zeros((5, 3)), supported=supported).baselines
    assert found["fixed_order"].efficiency.mean == 100.0


def test_the_random_choice_is_an_expectation():
    data = held_out([[1, 1, 1], [10, 20, 40]])
    found = judged(data, np.zeros((2, 3)), supported=[[1, 1, 1], [1, 0, 1]])
    assert found.baselines["random_supported"].efficiency.mean == 62.5


def test_the_hand_rule_prefers_large_tiles_on_large_problems_and_small_ones_on_small():
    data = samples.measured()
    score = baselines.hand_rule(data, np.arange(len(data.problems)), samples.MI355X)
    area = (data.candidates["tile_m"] * data.candidates["tile_n"]).to_numpy()
    sizes = data.problems["N"] * data.problems["Hi"] * data.problems["Wi"] * data.problems["K"]
    assert area[np.argmax(score[sizes.argmax()])] > area[np.argmax(score[sizes.argmin()])]


@pytest.mark.parametrize("column", ["problem_key", "layer_family"])
def test_a_validation_problem_that_was_trained_on_is_refused(column):
    data = held_out([[1, 1], [20, 40]])
    leaking = data.problems.copy()
    leaking.loc[1, column] = leaking.loc[0, column]
    with pytest.raises(UserError, match=column):
        judged(dataclasses.replace(data, problems=leaking), np.zeros((2, 2)))


def use(key, network, occurrences):
    return (key, network, "train", "conv", occurrences, 0.1)


@pytest.fixture
def data():
    """Two layers whose two candidates take like times, and a third that nothing can run."""
    return held_out([[1, 1], [20, 10], [20, 10], [NAN, NAN]])


HALF = [[0, 0], [1, 9], [9, 1], [0, 0]]
"""Scores that pick the slower candidate of the first layer, and the faster one of the second."""


def test_the_time_of_a_library_weighs_a_layer_that_no_candidate_can_run(data):
    lost = data.problems["problem_key"].iloc[3]
    times = (pd.DataFrame({"cuDNN": [us]}, index=[lost]) for us in (1e-3, 1e9))
    few, many = (judged(data, HALF, libraries=one).covered_time for one in times)
    assert few > 99 and many < 1 and 0 < judged(data, HALF).covered_time < 100


def test_a_network_counts_each_layer_as_often_as_it_runs(data):
    keys = data.problems["problem_key"].tolist()
    uses = [use(keys[1], "often", 1000), use(keys[2], "often", 1), use(keys[2], "once", 1)]
    found = judged(data, HALF, uses=uses)
    assert [one.network for one in found.networks] == ["often", "once"]
    alike = judged(data, HALF, uses=[use(key, "net", 1) for key in keys])
    assert found.networks[0].by_time < alike.networks[0].by_time < found.networks[1].by_time == 100.0
    assert found.worst_layer.efficiency == 50.0 and found.by_time < alike.by_time
    # Every layer is of one kind.
    assert sum(part.layers for part in found.by_kind.values()) == 2


def test_the_speed_beside_a_library_is_the_ratio_of_the_times(data):
    assert judged(data, HALF).libraries == []
    times = pd.DataFrame({"cuDNN": dict.fromkeys(data.problems["problem_key"], 2.0)})
    half = judged(data, [[0, 0], [1, 9], [1, 9], [0, 0]], libraries=times).libraries[0]
    whole = judged(data, [[0, 0], [9, 1], [9, 1], [0, 0]], libraries=times).libraries[0]
    assert whole.speed == pytest.approx(2 * half.speed, rel=1e-3) and half.layers == 2


NAMELESS = LayerEvaluation(network="", layer="", problem="N=8 C=64", efficiency=49.0)
"""A recorded problem, which is of no network."""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"efficiency": GOOD.model_copy(update={"mean": 96.9})}, "mean 96.9 %, 99.0 % is possible"),
        ({"efficiency": GOOD.model_copy(update={"p10": 92.9})}, "10th percentile 92.9 %"),
        ({"efficiency": GOOD.model_copy(update={"min": 49.0})}, "the pick of net conv has 49.0 %"),
        ({"sum_over_best": 1.05, "sum_possible": 1.02}, None),
        ({"sum_over_best": 1.06, "sum_possible": 1.02}, "all picks take 1.060 times as long as the fastest, 1.020 is "),
        (
            {"sum_over_best": 1.04, "possible": None, "sum_possible": None},
            "all picks take 1.040 times as long as the fastest, what is possible is not known",
        ),
        ({"efficiency": GOOD.model_copy(update={"mean": 97.9}), "possible": None, "sum_possible": None}, "mean 97.9 %"),
        ({"worst_of_longest": 1.31}, "the pick of net conv, one of the 10 layers that take most time"),
        (
            {"efficiency": GOOD.model_copy(update={"min": 49.0}), "worst_layer": NAMELESS.model_dump()},
            "the pick of N=8 C=64 has 49.0 %",
        ),
        (
            {"baselines": {"hand_rule": {"efficiency": GOOD.model_dump(), "speed": 1.0}}},
            "the best fixed choice",
        ),
        ({"covered_time": 94.0, "without_candidate": 98}, "98 of 100 layers, 6 % of the time, have no candidate"),
        (
            {"networks": [{
                "network": "hrnet", "run": "train", "layers": 1, "without_candidate": 0, "failed": 0, "time_us": 1.0,
                "by_time": 89.5
            }]},
            "hrnet (train) runs at 89.5 %",
        ),
        (
            {"libraries": [{"library": "cuDNN", "layers": 9, "speed": 0.5, "slower": 99.0}]},
            "cuDNN is faster: the picks have 0.50 of its speed on 9 layers",
        ),
    ],
)  # fmt: skip
def test_good_needs_every_limit(changed, reason):
    found = evaluation(samples.measured(), **changed)
    reasons = list(faults(found))
    assert len(reasons) == (reason is not None) and all(one.startswith(reason) for one in reasons)
    words = {kind: verdict_words(found.model_copy(update={"device_kind": kind})) for kind in ("simulated", "measured")}
    if reason is None:
        assert words == {"simulated": "as good as the simulation can tell", "measured": "good"}
    else:
        assert words["simulated"].startswith("not good enough in the simulation: ")
        assert words["measured"].startswith("not good enough: ")


def test_picks_that_beat_the_library_are_useful_even_where_better_ones_exist():
    low = {"efficiency": GOOD.model_copy(update={"mean": 96.0})}
    for speed, words in ((1.06, "faster than the library's own choice, with room left: mean"), (0.99, "not good")):
        library = {"library": "cuDNN's first plan", "layers": 9, "speed": speed, "slower": 2.0}
        assert verdict_words(evaluation(samples.measured(), libraries=[library], **low)).startswith(words)


@pytest.mark.parametrize(
    ("arch", "kind", "good", "command"),
    [
        ("gfx950", "simulated", True, "tileseer run results/models/gfx950 --configfile config/hip.yaml"),
        ("sm_90", "simulated", False, "tileseer run results/models/sm_90 --configfile config/cuda.yaml"),
        ("gfx950_mi355x", "recorded", False, "tileseer run results/models/gfx950 --configfile config/hip.yaml"),
        ("sm_90_cudnn", "recorded", False, "tileseer run results/models/sm_90_cudnn --configfile config/cudnn.yaml"),
        ("gfx942_miopen", "recorded", False, "tileseer tune results/models/gfx942_miopen --problems FILE --driver "),
        ("gfx942_miopen", "recorded", True, "tileseer select results/models/gfx942_miopen --problem "),
        ("gfx950", "measured", True, "tileseer select results/models/gfx950 --problem "),
        ("gfx950", "measured", False, "tileseer run --arch gfx950 --configfile mine.yaml"),
    ],
)
def test_the_next_step_is_a_command_in_the_words_of_the_call(arch, kind, good, command):
    found = evaluation(samples.measured(), device_kind=kind, covered_time=100.0 if good else 50.0)
    _, said = next_step(arch, [found], "tileseer run --arch gfx950 --configfile mine.yaml")
    assert said.startswith(command)


def test_the_next_step_of_a_trial_is_about_its_own_folder():
    trial = {kind: evaluation(samples.measured(), device_kind=kind) for kind in ("simulated", "measured")}
    assert next_step("gfx950", [trial["simulated"]], "")[0].endswith("replaces this one")
    assert next_step("gfx950", [trial["simulated"]], "", "gfx950-smoke")[0] == "measure your GPU"
    assert "results/models/gfx950-smoke " in next_step("gfx950", [trial["measured"]], "", "gfx950-smoke")[1]


def test_the_next_step_beside_a_faster_library_is_to_use_it():
    beside = {"library": "cuDNN", "layers": 9, "speed": 0.5, "slower": 99.0}
    found = evaluation(samples.measured(), device_kind="recorded", libraries=[beside])
    assert next_step("sm_90", [found], "")[1] == "tileseer run --arch sm_90_cudnn"
