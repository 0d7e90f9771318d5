"""How good the picks are that ship: by layer, by network, with what no candidate can run and beside other libraries."""

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from published_models import PAGE, evaluation, evaluation_inputs, make, publish

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.learn.model_schema import Summary
from tileseer.learn.validation_report import Validation
from tileseer.serve import publication
from tileseer.serve.evaluation import (
    Evaluation,
    LayerEvaluation,
    LibraryComparison,
    NetworkEvaluation,
    Picks,
    evaluate_picks,
)
from tileseer.serve.verdict import faults, verdict_words

GOOD = Summary(mean=99.0, median=100.0, p10=98.0, min=90.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"), "forward")


@pytest.fixture(scope="module")
def report(made):
    return documents.read_document(made[1], Validation)


@pytest.fixture
def data():
    """The small world, in which nothing can run one held-out layer."""
    whole = samples.measured()
    lost = np.flatnonzero(whole.held_out)[0]
    return whole.only(whole.problem != lost)


def evaluated(data, report, first, uses=(), libraries=None):
    """Evaluate picks with the efficiencies ``first`` on the layers that something ran."""
    rows = np.flatnonzero(data.held_out & (data.best_tflops > 0))
    keys = data.problems["problem_key"].to_numpy()[rows]
    values = np.resize(first, len(keys)).astype(float)
    picks = Picks("layers", pd.Series(values, index=keys), pd.Series("kernel", index=keys), GOOD, GOOD)
    inputs = evaluation_inputs(report, uses, libraries)
    return evaluate_picks(picks, data, report, samples.product(), inputs.uses, inputs.libraries), keys


def use(key, network, occurrences):
    return (key, network, "train", "conv", occurrences, 0.1, 1.0)


def test_a_layer_without_a_candidate_is_counted_and_never_averaged(data, report):
    found, keys = evaluated(data, report, [1.0])
    assert found.without_candidate == 1 and found.layers == len(keys) and found.first.mean == 100.0
    assert found.covered_layers == pytest.approx(100 * len(keys) / (len(keys) + 1), abs=1e-3)
    assert 0 < found.covered_time < 100


def test_the_time_of_a_library_weighs_a_layer_that_no_candidate_can_run(data, report):
    lost = data.problems["problem_key"].to_numpy()[np.flatnonzero(data.held_out)[0]]
    shares = []
    for us in (1e-3, 1e9):
        times = pd.DataFrame({"cuDNN": [us]}, index=[lost])
        shares.append(evaluated(data, report, [1.0], libraries=times)[0].covered_time)
    assert shares[0] > 99 and shares[1] < 1


def test_a_network_counts_each_layer_as_often_as_it_runs(data, report):
    _, keys = evaluated(data, report, [1.0])
    uses = [use(keys[0], "often", 1000), use(keys[1], "often", 1), use(keys[1], "once", 1)]
    found, _ = evaluated(data, report, [0.5, 1.0], uses)
    assert [one.network for one in found.networks] == ["often", "once"]
    assert found.networks[0].efficiency < 51 and found.networks[1].efficiency == 100.0
    assert found.worst_layer.efficiency == 50.0 and found.by_time < 51


def test_a_pick_that_does_not_run_is_counted(data, report):
    _, keys = evaluated(data, report, [1.0])
    found, _ = evaluated(data, report, [0.0, 1.0], [use(key, "net", 1) for key in keys])
    assert found.networks[0].failed == int(np.ceil(len(keys) / 2)) and found.first.min == 0.0


def test_the_speed_beside_a_library_is_the_ratio_of_the_times(data, report):
    found, keys = evaluated(data, report, [0.5])
    flop_us = {key: 2.0 for key in keys}
    assert found.libraries == []
    faster, _ = evaluated(data, report, [0.5], libraries=pd.DataFrame({"cuDNN": flop_us}))
    slower, _ = evaluated(data, report, [1.0], libraries=pd.DataFrame({"cuDNN": flop_us}))
    assert slower.libraries[0].speed == pytest.approx(2 * faster.libraries[0].speed, rel=1e-3)
    assert faster.libraries[0].layers == len(keys)


def test_what_is_evaluated_is_what_ships(made, report):
    found = documents.read_document(made[2] / model_files.EVALUATION, Evaluation)
    serving = documents.read_json(made[2] / model_files.SERVING)
    assert found.first.model_dump() == serving["validation"]["efficiency"]["served_model"]
    assert found.best_of_3.mean >= found.best_of_2.mean >= found.first.mean
    for count in (2, 3):
        assert (
            getattr(found, f"best_of_{count}").model_dump()
            == serving["validation"]["efficiency"][f"served_best_of_{count}"]
        )
    assert found.layers == report.n_problems


NAMELESS = LayerEvaluation(network="", layer="", problem="N=8 C=64", pick="kernel", efficiency=49.0)
"""A recorded problem, which is of no network."""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"first": GOOD.model_copy(update={"mean": 96.9})}, "mean 96.9 %, 99.0 % is possible"),
        ({"first": GOOD.model_copy(update={"p10": 92.9})}, "10th percentile 92.9 %"),
        ({"first": GOOD.model_copy(update={"min": 49.0})}, "the pick of net conv has 49.0 %"),
        (
            {"first": GOOD.model_copy(update={"min": 49.0}), "worst_layer": NAMELESS},
            "the pick of N=8 C=64 has 49.0 %",
        ),
        ({"without_model": GOOD}, "the best fixed choice"),
        ({"covered_time": 94.0, "without_candidate": 98}, "98 of 100 layers, 6 % of the time, have no candidate"),
        (
            {"networks": [NetworkEvaluation(
                network="hrnet", run="train", layers=1, without_candidate=0, failed=0, efficiency=89.5
            )]},
            "hrnet (train) runs at 89.5 %",
        ),
        (
            {"libraries": [LibraryComparison(library="cuDNN", layers=9, speed=0.5, slower=99.0)]},
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
    low = {"first": GOOD.model_copy(update={"mean": 96.0})}
    for speed, words in ((1.06, "faster than the library's own choice, with room left: mean"), (0.99, "not good")):
        library = LibraryComparison(library="cuDNN's first plan", layers=9, speed=speed, slower=2.0)
        assert verdict_words(evaluation(samples.measured(), libraries=[library], **low)).startswith(words)


def test_the_folder_says_what_it_is(tmp_path):
    page = (publish(tmp_path) / model_files.PAGE).read_text()
    assert "**Simulated: a formula made these times, no GPU." in page and "| forward_bf16 | " in page
    assert str(tmp_path) not in page and "None" not in page


@pytest.mark.parametrize(("before", "replace", "refused"), [
    ("measured", False, True), ("measured", True, False), ("simulated", False, False), ("recorded", False, False),
])  # fmt: skip
def test_models_of_a_gpu_are_not_replaced_by_simulated_ones(made, tmp_path, before, replace, refused):
    parts = [[part] for part in made]
    index = publication.publish_models(*parts, tmp_path / "gfx950", page=PAGE)
    text = index.model_copy(update={"device_kind": before}).model_dump_json()
    (tmp_path / "gfx950" / model_files.INDEX).write_text(text)
    if refused:
        with pytest.raises(UserError, match=r"measured times .*publish\.replace=true"):
            publication.publish_models(*parts, tmp_path / "gfx950", page=PAGE, replace=replace)
        assert (tmp_path / "gfx950" / model_files.INDEX).read_text() == text
    else:
        made_now = publication.publish_models(*parts, tmp_path / "gfx950", page=PAGE, replace=replace)
        assert made_now.device_kind == "simulated"
