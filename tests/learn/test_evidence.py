"""How a problem stands to what was measured: by its distance, its kind, and how many candidates ran there."""

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest

from tileseer.learn import evidence
from tileseer.learn.evidence import EVIDENCE_CLASSES, Evidence, EvidenceBounds
from tileseer.problems.problem import Problem, columns_of_frame, problem_frame

BOUNDS = EvidenceBounds(inside=0.5, edge=1.5)
LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}


def columns(*changed):
    layouts = [one.pop("layout", "") for one in changed]
    rows = [Problem.from_dims("forward", "fp16", **LAYER | one) for one in changed]
    return columns_of_frame(problem_frame([row.with_layout(layout) for row, layout in zip(rows, layouts, strict=True)]))


def class_of(measured, compared, **problem):
    found = Evidence.of(columns(*measured), np.array(compared), BOUNDS).classes(columns(problem))
    return EVIDENCE_CLASSES[found[0]]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ({"N": 9}, "inside"),
        ({"N": 16}, "edge"),  # twice the batch, of the largest tensor too
        ({"N": 64}, "outside"),
        ({"N": 256, "Hi": 512, "Wi": 512}, "outside"),
        ({"stride_h": 2, "stride_w": 2}, "edge"),
        ({"Y": 7, "X": 7, "pad_h": 3, "pad_w": 3}, "outside"),
        ({"G": 2}, "outside"),
        ({"G": 64}, "outside"),
        ({"layout": "NHWC"}, "outside"),
        ({"Di": 8}, "outside"),
    ],
)
def test_a_problem_is_inside_if_three_like_it_were_measured(problem, expected):
    near = ({}, {"C": 65}, {"K": 66})
    assert class_of(near, (2, 2, 2), **problem) == expected


def test_a_problem_with_one_candidate_says_nothing_of_a_choice():
    near = ({}, {"C": 65}, {"K": 66})
    assert class_of(near, (2, 1, 2), N=9) == class_of(near, (0, 0, 0), N=9) == "outside"
    assert class_of(near, (2, 1, 1)) == "inside"  # exactly this one was measured


def test_what_was_measured_is_listed_nearest_first():
    known = Evidence.of(columns({"G": 2}, {"N": 32}, {}, {"N": 16}), np.full(4, 3), BOUNDS)
    rows, away = known.nearest(columns({"N": 8}, {"G": 4}), 2)
    # Of the kind's three: doubling the batch doubles the largest tensor.
    steps = evidence.STEPS_OF_AN_OCTAVE
    assert rows.tolist() == [[2, 3], [0, -1]] and away[0].tolist() == [0, 2 * steps**2]
    assert away[1].tolist() == [3 * steps**2, evidence.FAR]


def test_nine_of_ten_left_out_layers_are_inside():
    data = samples.table_of(np.tile([[10, 9]], (200, 1)), "train", ndim=2)
    sizes = np.random.default_rng(0).integers(8, 512, (200, 2))
    table = data.problems.assign(C=sizes[:, 0], K=sizes[:, 1], G=1, layer_family=[f"f{i}" for i in range(200)])
    data.problems[table.columns] = table
    bounds = evidence.calibrated_bounds(data)
    assert 0 < bounds.inside < bounds.edge
    fold = np.arange(200) % 5
    classes = evidence.held_out_classes(data, np.arange(200), fold, bounds)
    shares = pd.Series(classes).value_counts(normalize=True)
    assert 0.8 < shares[0] < 0.97 and shares[2] < 0.05
    alone = samples.table_of([[10, 9]], "train", ndim=2)
    assert evidence.calibrated_bounds(alone) == evidence.NOWHERE
