"""The check of a model of simulated times on recorded ones."""

import dataclasses

import learning_samples as samples
import numpy as np

from tileseer.learn import efficiency
from tileseer.learn.training import reality_check


def recorded(keep):
    """Times of some kernels, as if others had measured them, with one that was lost."""
    data = samples.measured()
    few = data.candidates.iloc[keep].reset_index(drop=True)
    pairs = np.isin(data.candidate, keep) & (np.arange(len(data.candidate)) != np.flatnonzero(data.status == 0)[0])
    data = data.only(pairs)
    number = np.searchsorted(keep, data.candidate).astype(np.int32)
    return dataclasses.replace(
        data, candidates=few, candidate=number, arch="gfx950_mi355x", device_kind="recorded", source="somebody"
    )


def test_picks_are_among_recorded_candidates_and_count_by_their_times():
    data = recorded([1, 4, 5, 9])
    found = reality_check(samples.trained().model, data)
    achieved = data.grid(np.arange(len(data.problems)))
    scores = samples.trained().model.predict(data.problems)
    column = {name: i for i, name in enumerate(samples.trained().model.pool["candidate"])}
    reached = []
    for row, values in enumerate(achieved):
        offered = [(scores[row, column[n]], v) for n, v in zip(data.candidates["candidate"], values, strict=True) if v]
        if offered:
            reached.append(max(offered, key=lambda pair: pair[0])[1])
    assert found.n_problems == len(reached) and found.candidates == 4
    assert found.efficiency.mean == efficiency.percent(np.mean(reached))
    assert found.by_chance.mean < found.efficiency.mean
    low, high = found.interval["mean"]
    assert low <= found.efficiency.mean <= high
    assert (found.recording.arch, found.recording.device_kind, found.source) == (
        "gfx950_mi355x",
        "recorded",
        "somebody",
    )


def test_a_check_is_in_the_manifest_and_changes_nothing_else(tmp_path):
    checked = samples.train(samples.measured(), samples.product(), samples.SMALL, recorded=[recorded([0, 3])])
    manifest = checked.save(tmp_path)
    assert len(manifest.reality_check) == 1
    assert manifest.model_copy(update={"reality_check": []}) == samples.trained().manifest


def test_a_recording_without_a_known_candidate_is_no_check():
    data = recorded([0, 3])
    strangers = data.candidates.assign(candidate=["solver a", "solver b"])
    assert reality_check(samples.trained().model, dataclasses.replace(data, candidates=strangers)) is None
