"""The noise of single timings, from two tables that share problems and solvers."""

import numpy as np
import pandas as pd
import pytest

import sibling_noise
from tileseer.measure.again import noise_between_runs
from tileseer.problems.problem import DIMS


def times(draw, noise, factor=1.0):
    """Times of four solvers on 3,000 problems, on a board that takes ``factor`` times as long."""
    problems = pd.DataFrame(dict.fromkeys(DIMS, 1), index=range(3000)).assign(
        N=np.arange(3000), variant="forward", dtype="fp32", ndim=2, layout=""
    )
    rows = problems.loc[problems.index.repeat(4)].reset_index(drop=True)
    rows["solver"] = np.tile(["a", "b", "c", "d"], 3000)
    return rows.assign(milliseconds=factor * np.exp(noise * draw.standard_normal(len(rows))))


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_noise_is_found_and_what_a_board_changes_for_all_is_none(noise):
    draw = np.random.default_rng(0)
    first, second = times(draw, noise), times(draw, noise, factor=1.3)
    # A release made one solver twice as fast, and one problem in three slower.
    second.loc[second["solver"] == "b", "milliseconds"] /= 2
    second.loc[second["N"] % 3 == 0, "milliseconds"] *= 1.7
    found = sibling_noise.differences_within_problems(first, second)
    assert len(found) == 3 * 3000
    assert noise_between_runs((found / np.sqrt(2)).tolist()) == pytest.approx(noise, rel=0.1)


def test_recordings_that_find_steps_filled_have_a_floor():
    for arch in ("gfx90a_miopen", "gfx942_miopen"):
        path = sibling_noise.Path("config/recorded") / arch / sibling_noise.FILE
        recording = sibling_noise.documents.read_document(path, sibling_noise.Recording)
        assert {*recording.between_runs} == {*recording.operations}
        assert all(0.01 < one.relative < 0.3 for one in recording.between_runs.values())
