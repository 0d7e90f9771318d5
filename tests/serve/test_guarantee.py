"""Guaranteed sets: the promise holds on exchangeable problems, and what cannot be promised is not."""

import math

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import LAYER

from tileseer.cli import main
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.learn import cross_validation, model_files
from tileseer.problems.problem import Problem
from tileseer.serve import guarantee
from tileseer.serve.selector import threshold


def table(gaps, ndim=2):
    return pd.DataFrame({"group": [f"group{i}" for i in range(len(gaps))], "ndim": ndim, "gap": gaps})


def test_the_threshold_is_the_conformal_quantile():
    gaps = guarantee.calibrate_gaps(table([0.4, 0.1, 0.3, 0.2]))
    assert {name: part.model_dump() for name, part in gaps.items()} == {
        "all": {"gap": [0.1, 0.2, 0.3, 0.4], "share": [0.2, 0.4, 0.6, 0.8]}
    }
    # n = 4: ceil(5 * 0.6) = 3rd, ceil(5 * 0.8) = 4th, and 0.9 would need a fifth.
    assert threshold(gaps, 2, 0.6) == 0.3
    assert threshold(gaps, 3, 0.8) == 0.4
    assert threshold(gaps, 2, 0.9) == math.inf


def test_every_group_weighs_the_same():
    # A network of 40 easy layers is one of four networks, and so much of what is promised.
    gaps = guarantee.calibrate_gaps(pd.concat([table([0.0] * 40).assign(group="large"), table([0.3, 0.4, 0.5])]))
    assert threshold(gaps, 2, 0.2) == 0.0
    assert threshold(gaps, 2, 0.21) == 0.3
    assert threshold(gaps, 2, 0.8) == 0.5
    assert threshold(gaps, 2, 0.81) == math.inf


def test_a_dimensionality_has_gaps_of_its_own_where_it_has_enough_groups():
    volumes = table([0.9] * (guarantee.LEAST - 1), ndim=3)
    both = pd.concat([table([0.1] * guarantee.LEAST), volumes.assign(group=lambda t: "3d" + t.group)])
    gaps = guarantee.calibrate_gaps(both)
    assert set(gaps) == {"2d", "all"} and len(gaps["all"].gap) == 2 * guarantee.LEAST - 1
    assert threshold(gaps, 2, 0.9) == 0.1
    assert threshold(gaps, 3, 0.9) == 0.9


def test_families_of_networks_are_the_groups_where_there_are_enough():
    count = 2 * guarantee.LEAST
    networks = [f"net{i}" for i in range(count)]
    problems = pd.DataFrame(
        {
            "problem_key": [f"p{i}" for i in range(count + 1)],
            "network": [*networks, "design"],
            "layer_family": [f"layer{i}" for i in range(count + 1)],
        }
    )
    pairs_of_networks = {name: f"family{i // 2}" for i, name in enumerate(networks)}
    groups = guarantee.groups_of(problems, pairs_of_networks)
    assert groups["group"].tolist() == [f"family{i // 2}" for i in range(count)]
    few = guarantee.groups_of(problems, dict.fromkeys(networks, "one"))
    assert few["group"].tolist() == problems["layer_family"].tolist()


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9])
def test_problems_of_a_new_group_are_covered(confidence):
    draw = np.random.default_rng(5)
    hits = []
    for _ in range(400):
        # Groups differ much more than their members do: a plain quantile over problems would promise too much.
        gaps = np.repeat(draw.exponential(size=60), draw.integers(1, 5, 60)) * draw.uniform(0.9, 1.1)
        group = np.cumsum(np.diff(gaps, prepend=-1) != 0)
        known = pd.DataFrame({"gap": gaps, "ndim": 2, "group": group})[group < group[-1]]
        depth = threshold(guarantee.calibrate_gaps(known), 2, confidence)
        hits.append(gaps[-1] <= depth)
    # Three standard errors of 400 draws.
    assert np.mean(hits) >= confidence - 3 * math.sqrt(confidence * (1 - confidence) / 400)
    assert np.mean(hits) <= confidence + 0.05 + 3 * math.sqrt(confidence * (1 - confidence) / 400)


def test_coverage_counts_sets_that_hold_a_near_best_candidate():
    gaps = guarantee.calibrate_gaps(table([0.0] * 50 + [0.5] * 49))
    scores = np.array([[0.0, -0.4, -0.9], [0.0, -0.4, -np.inf], [-np.inf] * 3])
    achieved = np.array([[0.5, 1.0, 0.2], [1.0, 0.98, 0.0], [0.0, 0.0, 1.0]])
    problems = pd.DataFrame({"ndim": [2, 2, 3], "group": ["a", "a", "b"]})
    found = {entry.confidence: entry for entry in guarantee.coverage(gaps, 10**40, problems, scores, achieved)}
    assert found[50.0].coverage == pytest.approx(100 / 3, abs=1e-4)
    assert found[50.0].coverage_by_group == pytest.approx(100 * (0.5 + 0) / 2)
    assert found[50.0].mean_set_size == pytest.approx(2 / 3, abs=0.01)
    assert found[90.0].coverage == pytest.approx(200 / 3, abs=1e-4)
    assert found[90.0].largest_set_size == 2


def test_gaps_are_zero_where_the_pick_is_near_best(made):
    unseen = parquet.read_table(made / "training/forward_bf16" / model_files.OUT_OF_FOLD).to_pandas()
    assert (unseen["gap"] >= 0).all()
    assert (unseen["gap"][unseen["efficiency"] >= cross_validation.NEAR] == 0).all()
    # Few trees give some candidates one score: a set of gap 0 holds them all.
    others = unseen["gap"][unseen["efficiency"] < cross_validation.NEAR]
    assert (others >= 0).all() and (others > 0).any()
    training = samples.measured().problems.query("split == 'train'")
    assert set(unseen["problem_key"]) <= set(training["problem_key"])


def test_a_set_grows_with_the_confidence_and_is_the_head_of_the_ranking(selector):
    ranked = selector.rank(Problem.from_dims("forward", "bf16", **LAYER))
    sizes = []
    for confidence in (0.1, 0.5, 0.9, 0.999):
        head = selector.near_best_set(ranked, 2, confidence)
        assert head == ranked[: len(head)]
        sizes.append(len(head))
    assert sizes == sorted(sizes) and sizes[0] >= 1 and sizes[-1] == len(ranked)
    with pytest.raises(UserError, match="between 0 and 1"):
        selector.near_best_set(ranked, 2, 1.0)


def test_the_command_prints_the_set_and_what_was_measured(made, selector, capsys):
    known = parquet.read_table(selector.folder / model_files.KNOWN).to_pandas().iloc[0]
    word = ",".join(f"{name}={known[name]}" for name in known.index[:19])
    arguments = ["select", str(made / "models"), "--problem", word]
    assert main.main([*arguments, "--confidence", "0.9"]) == 0
    said = capsys.readouterr().out
    assert f"fastest measured on exactly this problem (simulated): {known['candidate']}" in said
    assert main.main([*arguments, "--no-known"]) == 0
    assert "fastest measured" not in capsys.readouterr().out
    assert main.main([*arguments, "--confidence", "2"]) == 2
    assert "between 0 and 1" in capsys.readouterr().err


@given(st.integers(1, 30), st.floats(0.01, 100))
def test_units_make_scores_of_another_spread_compare(count, factor):
    score = np.random.default_rng(count).normal(size=count)
    one = np.zeros(count, np.int64)
    unit = cross_validation.units(one, score)
    ranked = np.sort(score)[::-1]
    assert unit[0] == (ranked[0] - ranked[min(count, 11) - 1] if count > 1 else 1.0)
    if count > 1:
        np.testing.assert_allclose(cross_validation.units(one, factor * score + 3), factor * unit, rtol=1e-6)
    two = cross_validation.units(np.repeat([0, 4], count), np.concatenate([score, 2 * score]))
    np.testing.assert_allclose(two, [unit[0], 2 * unit[0] if count > 1 else 1.0])
