from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tileseer.learn import end_to_end
from tileseer.learn.model_schema import Summary
from tileseer.learn.validation_report import Selectors, Stratum


def uses(**columns):
    return pd.DataFrame(
        {
            "problem_key": ["a", "b", "c"], "network": "net", "run": "train", "layer": ["x", "y", "z"],
            "occurrences": [1, 3, 1], "flop_share": [0.2, 0.6, 0.2], "nearest_training": [0.4, 2.5, np.inf],
        } | columns
    )  # fmt: skip


def runs(picked, table=None, keys=("a", "b", "c")):
    work, best = np.full(len(keys), 10.0), np.full(len(keys), 5.0)
    floors = {"perfect_selector": np.ones(len(keys)), "perfect_model": np.full(len(keys), 0.5)}
    uses_ = uses() if table is None else table
    problems = pd.DataFrame({"problem_key": keys})
    dataset = SimpleNamespace(best_tflops=best)
    scored = SimpleNamespace(dataset=dataset, rows=np.arange(len(keys)), problems=problems, picked=np.array(picked))
    return end_to_end.of_runs(scored, uses_, work, floors)


def test_the_time_of_a_network_counts_each_layer_as_often_as_it_occurs():
    (run,) = runs([1.0, 0.5, 1.0])
    assert run.end_to_end == pytest.approx(100 * 5 / 8)
    assert run.flop_weighted == pytest.approx(70.0)
    assert (run.n_layers, run.n_failed, run.flop_scored) == (3, 0, 100.0)


def test_a_pick_that_failed_is_counted_and_weighs_nothing_in_the_time():
    (run,) = runs([1.0, 0.0, 1.0])
    assert (run.end_to_end, run.n_failed, run.flop_weighted) == (100.0, 1, 40.0)
    (run,) = runs([0.0, 0.0, 0.0])
    assert (run.end_to_end, run.n_failed) == (0.0, 3)


def test_every_run_has_its_noise_floors():
    (run,) = runs([1.0, 0.0, 1.0])
    assert run.noise_floor.perfect_selector.model_dump() == {"end_to_end": 100.0, "flop_weighted": 100.0}
    assert run.noise_floor.perfect_model.model_dump() == {"end_to_end": 50.0, "flop_weighted": 50.0}


def test_layers_without_measurement_are_told_by_the_share_of_flop():
    (run,) = runs([1.0, 1.0], keys=("a", "b"))
    assert run.flop_scored == 80.0


def test_the_worst_network_comes_first_and_networks_share_problems():
    table = pd.concat([uses(), uses(network="other", occurrences=[9, 1, 1])])
    first, second = runs([1.0, 0.5, 1.0], table)
    assert (first.network, second.network) == ("net", "other")


def stratum(picked):
    summary = Summary.of(picked)
    floor = Selectors[Summary](perfect_selector=summary)
    return Stratum(n_problems=len(picked), efficiency=summary, interval={}, within_2_percent=0.0, noise_floor=floor)


def test_classes_of_distance_have_every_problem_once():
    picked = np.array([1.0, 0.9, 0.5])
    found = end_to_end.by_distance(uses(), pd.Series(["a", "b", "c"]), lambda part: stratum(picked[part]))
    assert [(part.above, part.up_to, part.of_a_known_kind) for part in found] == [
        (0.0, 0.5, True), (2.0, 3.0, True), (None, None, False),
    ]  # fmt: skip
    assert [part.efficiency.mean for part in found] == [100.0, 90.0, 50.0]
