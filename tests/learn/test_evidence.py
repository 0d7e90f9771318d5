"""How a problem stands to what was measured: by its distance, its kind, and how many candidates ran there."""

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest

from tileseer.learn import evidence
from tileseer.learn.evidence import EVIDENCE_CLASSES, Evidence, LearntEvidence
from tileseer.problems.problem import Problem, columns_of_frame, problem_frame

DISTANCES = LearntEvidence(inside=0.5, edge=1.5, kinds=[])
KNOWN = samples.well_known(DISTANCES)
LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}


def columns(*changed):
    layouts = [one.pop("layout", "") for one in changed]
    rows = [Problem.from_dims("forward", "fp16", **LAYER | one) for one in changed]
    return columns_of_frame(problem_frame([row.with_layout(layout) for row, layout in zip(rows, layouts, strict=True)]))


def class_of(measured, compared, learnt=KNOWN, **problem):
    found = Evidence.from_problems(columns(*measured), np.array(compared), learnt).of(columns(problem))
    return EVIDENCE_CLASSES[found.classes[0]]


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
    known = Evidence.from_problems(columns({"G": 2}, {"N": 32}, {}, {"N": 16}), np.full(4, 3), KNOWN)
    rows, away = known.nearest(columns({"N": 8}, {"G": 4}), 2)
    # Of the kind's three: doubling the batch doubles the largest tensor.
    steps = evidence.STEPS_OF_AN_OCTAVE
    assert rows.tolist() == [[2, 3], [0, -1]] and away[0].tolist() == [0, 2 * steps**2]
    assert away[1].tolist() == [3 * steps**2, evidence.FAR]


@pytest.mark.parametrize(
    ("changed", "near", "far"),
    [
        ({}, "inside", "outside"),
        ({"cases": 29, "others": 400}, "edge", "outside"),
        ({"cases": 29, "others": 290}, "inside", "outside"),  # of few layers a common kind
        ({"cases": 9}, "outside", "outside"),
        ({"cases": None}, "outside", "outside"),  # no layer of the kind was ever left out
        ({"loss": (1.06, 1.06, 1.06)}, "edge", "outside"),
        ({"loss": (1.26, 1.3, 1.3)}, "outside", "outside"),
    ],
)
def test_a_problem_nearby_is_inside_only_if_its_kind_is_known_and_loses_little(changed, near, far):
    main, others = "dense 2D/3x3", changed.pop("others", 100)
    kinds = []
    for one in samples.well_known(DISTANCES, **{"cases": 100, **changed} | {"cases": others}).kinds:
        cases = changed.get("cases", 100) if one.kind == main else others
        kinds += [one.model_copy(update={"cases": cases})] if cases is not None else []
    learnt = DISTANCES.model_copy(update={"kinds": kinds})
    measured = ({}, {"C": 65}, {"K": 66})
    assert class_of(measured, (2, 2, 2), learnt, N=9) == near
    assert class_of(measured, (2, 2, 2), learnt, N=64) == far
    assert class_of(measured, (2, 2, 2), learnt) == "inside"  # exactly this one was measured


def drawn(count=200):
    """Dense layers of many sizes, of which the first candidate is best."""
    data = samples.table_of(np.tile([[10, 9]], (count, 1)), "train", ndim=2)
    sizes = np.random.default_rng(0).integers(8, 512, (count, 2))
    table = data.problems.assign(C=sizes[:, 0], K=sizes[:, 1], G=1, layer_family=[f"f{i}" for i in range(count)])
    data.problems[table.columns] = table
    return data


def with_picks(data, picked, fold, layers=None, learnt=None):
    """Evidence by left-out layers, each problem one of its own; the fixed order loses a tenth."""
    rows = np.flatnonzero(fold >= 0)
    found = evidence.Judged(rows, picked[rows], np.full(len(rows), 0.9), np.ones((len(rows), len(evidence.TIMED))))
    every = np.array([f"layer {row}" for row in range(len(fold))]) if layers is None else layers
    return evidence.with_losses(learnt or evidence.calibrated_distances(data), data, every, fold, found)


def test_nine_of_ten_left_out_layers_are_near():
    data = drawn()
    learnt = evidence.calibrated_distances(data)
    assert 0 < learnt.inside < learnt.edge
    fold = np.arange(200) % 5
    learnt = with_picks(data, np.ones(200), fold, learnt=learnt)
    classes = evidence.held_out(data, np.arange(200), fold, learnt).classes
    shares = pd.Series(classes).value_counts(normalize=True)
    assert 0.8 < shares[0] < 0.97 and shares[2] < 0.05
    alone = samples.table_of([[10, 9]], "train", ndim=2)
    assert evidence.calibrated_distances(alone) == evidence.NOTHING_LEARNT


def test_a_kind_has_the_losses_of_its_own_layers_and_a_thin_one_those_of_its_parent():
    data, fold = drawn(), np.arange(200) % 5
    strided = (data.problems["stride_h"] == 2).to_numpy()
    # Strided layers are picked at a quarter of the speed.
    picked = np.where(strided, 0.25, 1.0)
    learnt = with_picks(data, picked, fold)
    found = {one.kind: one for one in learnt.kinds}
    assert found[""].cases == 200 and 2.3 < found[""].loss[0] < 2.7 and found[""].own_loss[0] == round(1 / 0.9, 6)
    many = [one for one in learnt.kinds if one.kind.endswith("many channels/strided")]
    assert many and all(one.loss[0] > 3.5 and one.below_half[0] > 0.8 for one in many)
    assert all(low <= high for one in learnt.kinds for low, high in zip(one.loss, one.loss[1:], strict=False))
    few = [one for one in learnt.kinds if one.kind.endswith("few channels/strided")]
    assert few and all(one.cases < 10 and 2 < one.loss[0] < 3.5 for one in few)
    # Its layers are near, and it is outside all the same.
    expected = evidence.held_out(data, np.arange(200), fold, learnt)
    assert (expected.classes[strided] == evidence.OUTSIDE).all()
    # A layer counts once, whatever the number of its sizes.
    assert with_picks(data, picked, fold, np.full(200, "one")).kinds[0].cases == 1
    # Layers of which none was left out are measured ones all the same.
    some = with_picks(data, picked, np.where(strided, -1, fold))
    rows = {one.kind: (one.cases, one.loss[0]) for one in some.kinds}
    assert rows[""][0] == 200 and {kind: cases for kind, (cases, _) in rows.items()} == {
        kind: one.cases for kind, one in found.items()
    }
    assert all(loss == 1.0 for _, loss in rows.values())
