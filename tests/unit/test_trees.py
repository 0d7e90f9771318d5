"""The trees in NumPy have the scores of LightGBM, bit for bit."""

import random
import re
import subprocess
import sys
from functools import cache

import lightgbm
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.model import trees
from tileseer.model.trees import Trees, load

ROWS, COLUMNS = 2000, 6
CATEGORY = 5


def table(seed, whole):
    """Numbers of all sizes, zeros and missing ones; the last column holds categories, unknown ones in a new table."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(ROWS, COLUMNS)) * 10.0 ** rng.integers(-3, 4, (ROWS, COLUMNS))
    data[rng.random(data.shape) < 0.1] = 0
    data[:, CATEGORY] = rng.integers(0 if whole else -2, 70, ROWS)
    if not whole:
        data[:, CATEGORY] += rng.random(ROWS) / 2
    data[rng.random(data.shape) < 0.1] = np.nan
    return data.astype(np.float32)


@pytest.mark.parametrize("parameters", [{}, {"zero_as_missing": True}, {"use_missing": False}], ids=str)
def test_scores_are_those_of_lightgbm(parameters):
    data = table(1, whole=True)
    label = np.nan_to_num(data[:, 0]) + (np.nan_to_num(data[:, CATEGORY]) % 7 > 3) + np.isnan(data[:, 1])
    parameters = {"num_leaves": 20, "verbose": -1, "min_data_per_group": 5, **parameters}
    booster = lightgbm.train(parameters, lightgbm.Dataset(data, label, categorical_feature=[CATEGORY]), 30)
    text = booster.model_to_string()
    assert "cat_threshold" in text
    trees = Trees(text)
    assert (trees.num_trees(), trees.feature_name()) == (30, booster.feature_name())
    for unseen in (data, table(2, whole=False)):
        for count in (None, 7):
            np.testing.assert_array_equal(
                trees.predict(unseen, num_iteration=count), booster.predict(unseen, num_iteration=count)
            )
    assert trees.predict(data[:0]).shape == (0,)


def test_many_rows_have_the_scores_of_few():
    data = np.tile(table(1, whole=True), (3, 1))
    parameters = {"num_leaves": 20, "verbose": -1, "min_data_per_group": 5, "objective": "regression"}
    label = np.nan_to_num(data[:, 0])
    booster = lightgbm.train(parameters, lightgbm.Dataset(data, label, categorical_feature=[CATEGORY]), 120)
    whole = trees.round_leaves(booster)
    assert len(data) >= trees.MANY and whole.num_trees() > trees.TOGETHER
    expected = np.append(trees.predict(whole, data[:10], 1), whole.predict(data[10:]))
    np.testing.assert_array_equal(trees.predict(whole, data, 1), expected)


def test_a_tree_that_is_one_leaf():
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.zeros((50, 2)), np.full(50, 3.5)), 2)
    rows = np.zeros((4, 2))
    np.testing.assert_array_equal(Trees(booster.model_to_string()).predict(rows), booster.predict(rows))


@pytest.mark.parametrize("read", [load, Trees])
def test_what_is_no_model_is_refused(read, capfd):
    with pytest.raises(ValueError):
        read("this is\nno model")


def test_contributions_need_lightgbm():
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.zeros((50, 2)), np.arange(50)), 1)
    with pytest.raises(UserError, match="workflow"):
        Trees(booster.model_to_string()).predict(np.zeros((1, 2)), pred_contrib=True)


@cache
def trained():
    data = table(1, whole=True)
    label = np.nan_to_num(data[:, 0]) + (np.nan_to_num(data[:, CATEGORY]) % 7 > 3)
    parameters = {"num_leaves": 9, "verbose": -1, "min_data_per_group": 5, "num_threads": 1}
    return lightgbm.train(
        parameters, lightgbm.Dataset(data, label, categorical_feature=[CATEGORY]), 4
    ).model_to_string()


def with_fitting_sizes(text):
    """The text with the sizes of its trees as they are, which is what somebody who forges one would write."""
    blocks = text.partition("\nend of trees")[0].split("\nTree=")[1:]
    sizes = " ".join(str(len(f"Tree={block}\n".encode())) for block in blocks)
    return re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", text, count=1, flags=re.M)


def mutated(text, draw):
    """The text with one field of one tree changed, a line lost, doubled or moved, a space more, or a cut."""
    lines = text.splitlines()
    fields = [number for number, line in enumerate(lines) if "=" in line and number < lines.index("end of trees")]
    number = draw.choice(fields)
    name, _, value = lines[number].partition("=")
    words = value.split(" ")
    place = draw.randrange(len(words))
    kind = draw.choice(["value"] * 6 + ["short", "long", "lost", "twice", "cut", "swap", "lines", "space"])
    if kind == "lines":
        other = draw.randrange(lines.index("end of trees"))
        lines[number], lines[other] = lines[other], lines[number]
        return with_fitting_sizes("\n".join(lines) + "\n")
    if kind == "value":
        words[place] = draw.choice(
            ["0", "-1", "1", "7", "8", "-9", "-10", "99", "2147483648", "nan", "inf", "1e308", "x", ""]
        )
    elif kind == "swap":
        other = draw.randrange(len(words))
        words[place], words[other] = words[other], words[place]
    elif kind == "space":
        words.insert(place, draw.choice(["", "\n", "\n\n", "\r", "\t", "\v", "\u2028"]))
    else:
        words = {"short": words[:-1], "long": [*words, "0"]}.get(kind, words)
    lines[number] = f"{name}={' '.join(words)}"
    if kind in ("lost", "twice"):
        lines[number : number + 1] = [] if kind == "lost" else [lines[number]] * 2
    changed = "\n".join(lines) + "\n"
    if kind == "cut":
        return changed[: draw.randrange(len(changed))]
    return with_fitting_sizes(changed) if name != "tree_sizes" else changed


JUDGE = """
import sys
import numpy as np
from tileseer.model.trees import load
for line in sys.stdin:
    try:
        score = load(eval(line)).predict(np.zeros((3, 6)), num_threads=1)
        print("scores" if np.isfinite(score).all() else "no numbers", flush=True)
    except ValueError as error:
        print("refused", str(error).replace(chr(10), " ")[:60], flush=True)
"""


def test_no_changed_text_aborts_or_hangs_or_scores_nothing():
    """Changes of every kind, also those that LightGBM follows to a crash or without end: one line each."""
    draw, text = random.Random(20), trained()
    texts = [mutated(text, draw) for _ in range(400)]
    run = subprocess.run(
        [sys.executable, "-c", JUDGE], input="".join(f"{one!r}\n" for one in texts), capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    said = [line for line in run.stdout.splitlines() if not line.startswith("[LightGBM]")]
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(said) == len(texts)
    assert not said.count("no numbers")
    assert sum(line.startswith("refused") for line in said) > 200


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("left_child=1", "left_child=0", "left_child or right_child"),
        ("split_feature=0", "split_feature=6", "split_feature"),
        ("split_feature=0", "split_feature=-1", "split_feature"),
        ("num_leaves=9", "num_leaves=10", "leaf_count leaf_value"),
        ("leaf_value=", "leaf_value=nan ", "leaf_value"),
        ("is_linear=0", "is_linear=1", "is_linear"),
        ("\nsplit_gain", "\n\nsplit_gain", "no field"),
        ("regression", "regression\r", "no whole"),
        ("tree_sizes=", "tree_sizes=1", "tree_sizes"),
        ("max_feature_idx=5", "max_feature_idx=50", "max_feature_idx"),
    ],
)
def test_what_is_wrong_with_a_text_is_told(old, new, told):
    changed = trained().replace(old, new, 1)
    with pytest.raises(ValueError, match=told):
        load(changed if "tree_sizes" in old else with_fitting_sizes(changed))
