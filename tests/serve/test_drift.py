"""What models of earlier times are worth on new ones."""

import dataclasses

import learning_samples as samples
import numpy as np
import pytest

from tileseer.data.provenance import Taken
from tileseer.learn.left_out import left_out
from tileseer.serve.drift import drift_of


@pytest.fixture(scope="module")
def earlier():
    data = samples.measured()
    return dataclasses.replace(
        data, problems=data.problems.assign(split="train"), taken=Taken(library="old", date="2024", driver=None)
    )


def slower(data, factor):
    return dataclasses.replace(data, latency_ms=data.latency_ms * factor, tflops=data.tflops / factor)


def test_times_that_all_grew_alike_are_no_drift(earlier):
    found = drift_of(slower(earlier, 2.0), earlier, samples.recipe())
    assert found.time_ratio == 0.5 and found.spread == 0.0 and found.same_fastest == 100.0
    assert found.first == found.before and found.fastest_before.min == 100.0
    assert str(found.earlier) == "library old, date 2024, driver not known"


def test_a_candidate_that_became_slow_costs_the_first_pick_and_less_the_best_of_more(earlier):
    # What the models of the earlier times pick most often takes ten times as long now.
    scored = left_out(earlier, samples.recipe())
    often = np.bincount(scored.picks).argmax()
    found = drift_of(slower(earlier, np.where(earlier.candidate == often, 10.0, 1.0)), earlier, samples.recipe())
    assert found.first.mean < found.before.mean - 5
    assert found.first.mean < found.best_of_2.mean <= found.best_of_3.mean
    assert found.same_fastest < 100 and found.fastest_before.mean < 100


def test_every_figure_is_of_the_layers_that_both_have(earlier):
    scored = left_out(earlier, samples.recipe())
    # The later times lack the half of the layers on which the picks were worse.
    gone = scored.rows[scored.picked < np.median(scored.picked)]
    later = earlier.only(~np.isin(earlier.problem, gone))
    found = drift_of(later, earlier, samples.recipe())
    assert found.layers == len(scored.rows) - len(gone)
    assert found.first == found.before and found.before.min > 100 * scored.picked.min()


def test_without_a_pair_in_both_nothing_is_said(earlier):
    renamed = earlier.candidates.assign(candidate=earlier.candidates["candidate"] + "_other")
    assert drift_of(dataclasses.replace(earlier, candidates=renamed), earlier, samples.recipe()) is None
