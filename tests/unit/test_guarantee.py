"""Guaranteed sets: the promise holds on exchangeable problems, and what cannot be promised is not."""

import math

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from test_publish import make

from tilewright import cli, cross_validation, parquet, publish
from tilewright.errors import UserError
from tilewright.problem import Problem
from tilewright.selection import Selector
from tilewright.serving import guarantee

LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 56, "Wi": 56, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}


def table(gaps, ndim=2):
    families = [f"family{i}" for i in range(len(gaps))]
    return pd.DataFrame({"layer_family": families, "ndim": ndim, "gap": gaps})


def test_the_threshold_is_the_conformal_quantile():
    gaps = guarantee.calibrate(table([0.4, 0.1, 0.3, 0.2]))
    assert gaps == {"all": [0.1, 0.2, 0.3, 0.4]}
    # n = 4: ceil(5 * 0.6) = 3rd, ceil(5 * 0.8) = 4th, and 0.9 would need a fifth.
    assert guarantee.threshold(gaps, 2, 0.6) == 0.3
    assert guarantee.threshold(gaps, 3, 0.8) == 0.4
    assert guarantee.threshold(gaps, 2, 0.9) == math.inf


def test_a_family_counts_once_and_groups_need_enough_of_them():
    one = table([0.1] * 40).assign(layer_family="one")
    assert guarantee.calibrate(one.assign(gap=np.linspace(0, 1, 40)))["all"] == [1.0]
    both = pd.concat(
        [table([0.1] * 30), table([0.9] * 29, ndim=3).assign(layer_family=lambda t: "3d" + t.layer_family)]
    )
    gaps = guarantee.calibrate(both)
    assert set(gaps) == {"2d", "all"} and len(gaps["all"]) == 59
    assert guarantee.threshold(gaps, 2, 0.9) == 0.1
    assert guarantee.threshold(gaps, 3, 0.9) == 0.9


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9])
def test_exchangeable_problems_are_covered(confidence):
    draw = np.random.default_rng(5)
    hits = []
    for _ in range(400):
        gaps = draw.exponential(size=60)
        depth = guarantee.threshold(guarantee.calibrate(table(gaps[:-1])), 2, confidence)
        hits.append(gaps[-1] <= depth)
    # Three standard errors of 400 draws.
    assert np.mean(hits) >= confidence - 3 * math.sqrt(confidence * (1 - confidence) / 400)
    assert np.mean(hits) <= confidence + 0.05 + 3 * math.sqrt(confidence * (1 - confidence) / 400)


def test_coverage_counts_sets_that_hold_a_near_best_candidate():
    gaps = {"all": [0.0] * 50 + [0.5] * 49}
    scores = np.array([[0.0, -0.4, -0.9], [0.0, -0.4, -np.inf], [-np.inf] * 3])
    achieved = np.array([[0.5, 1.0, 0.2], [1.0, 0.98, 0.0], [0.0, 0.0, 1.0]])
    found = {
        entry["confidence"]: entry for entry in guarantee.coverage(gaps, np.array([2, 2, 3]), scores, achieved, 0.97)
    }
    assert found[50.0]["coverage"] == pytest.approx(100 / 3, abs=1e-4)
    assert found[50.0]["mean_set_size"] == pytest.approx(2 / 3, abs=0.01)
    assert found[90.0]["coverage"] == pytest.approx(200 / 3, abs=1e-4)
    assert found[90.0]["largest_set_size"] == 2


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarantee")
    training, report, serving = make(folder, "forward")
    publish.publish([training], [report], [serving], folder / "models")
    return folder


def test_gaps_are_zero_where_the_pick_is_near_best(made):
    unseen = parquet.read(made / "training/forward_bf16" / publish.OUT_OF_FOLD).to_pandas()
    assert (unseen["gap"] >= 0).all()
    assert (unseen["gap"][unseen["efficiency"] >= cross_validation.NEAR] == 0).all()
    assert (unseen["gap"][unseen["efficiency"] < cross_validation.NEAR] > 0).all()
    training = samples.measured().problems.query("split == 'train'")
    assert set(unseen["problem_key"]) <= set(training["problem_key"])


def test_a_set_grows_with_the_confidence_and_is_the_head_of_the_ranking(made):
    selector = Selector.load(made / "models", "forward_bf16")
    wanted = Problem.from_dims("forward", "bf16", **LAYER)
    ranked = selector.rank(wanted)["candidate"].tolist()
    sizes = []
    for confidence in (0.1, 0.5, 0.9, 0.999):
        found = selector.guaranteed(wanted, confidence)["candidate"].tolist()
        assert found == ranked[: len(found)]
        sizes.append(len(found))
    assert sizes == sorted(sizes) and sizes[0] >= 1 and sizes[-1] == len(ranked)
    with pytest.raises(UserError, match="between 0 and 1"):
        selector.guaranteed(wanted, 1.0)


def test_the_command_prints_the_set_and_what_was_measured(made, capsys):
    known = Selector.load(made / "models", "forward_bf16").known.iloc[0]
    word = ",".join(f"{name}={known[name]}" for name in known.index[:19])
    arguments = ["select", str(made / "models"), "--problem", word]
    assert cli.main([*arguments, "--confidence", "0.9"]) == 0
    said = capsys.readouterr().out
    assert f"fastest measured on exactly this problem (simulated): {known['candidate']}" in said
    assert cli.main([*arguments, "--no-known"]) == 0
    assert "fastest measured" not in capsys.readouterr().out
    assert cli.main([*arguments, "--confidence", "2"]) == 2
    assert "between 0 and 1" in capsys.readouterr().err
