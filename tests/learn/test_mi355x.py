"""The MI355X times that others measured."""

import numpy as np
import pandas as pd
import pytest
from repository import COEFFICIENTS, CONFIG, MI355X

from tileseer.core import parquet
from tileseer.data.dataset import Dataset
from tileseer.data.dataset_files import read_recording
from tileseer.learn.formula import Formula, FormulaPrior
from tileseer.libraries.names import read_kernel_name

FOLDER = CONFIG / "recorded/gfx950_mi355x"
SOURCE = FOLDER / "forward_bf16/source.csv"
SCHEME = "grouped_conv_forward_bf16_2d_"
TABLES = ("kernels", "pairs", "problems")


def frames(folder):
    return {name: parquet.read_table(folder / f"forward_bf16/{name}.parquet").to_pandas() for name in TABLES}


def test_every_name_is_one_of_thirteen_candidates_and_every_shape_is_there():
    found = frames(FOLDER)
    source = pd.read_csv(SOURCE)
    called = found["kernels"].explode("names")
    assert sorted(called["names"]) == sorted(source["kernel"].unique()) and len(found["kernels"]) == 13
    for name, kernel in zip(called["names"], called["kernel"], strict=True):
        assert read_kernel_name(SCHEME + name, "gfx950_mi355x").kernel.name == kernel
    shapes = source.drop_duplicates(source.columns[1:13].tolist())
    assert len(found["problems"]) == len(shapes) == 185
    assert set(found["problems"]["split"]) == {"train"}
    # A pair of one name and one session has the time of the source.
    row = source[(source["problem_idx"] == 0) & (source["kernel"] == "64x128x64_compv3")].iloc[0]
    at = found["problems"][
        (found["problems"][["N", "C", "K", "Hi", "Y"]] == row[["N", "C", "K", "Hi", "Y"]]).all(axis=1)
    ]
    kernel = int(np.flatnonzero(found["kernels"]["names"].map(lambda names: "64x128x64_compv3" in names))[0])
    pairs = found["pairs"]
    pair = pairs[pairs["problem"].isin(at.index) & (pairs["kernel"] == kernel)]
    assert np.isclose(pair["median_us"], 1000 * row["latency_ms"], rtol=1e-12).any()


@pytest.fixture(scope="module")
def data():
    return Dataset.read(FOLDER / "forward_bf16").with_estimates(MI355X, COEFFICIENTS)


def test_the_recording_says_where_it_comes_from_and_its_resources_are_estimates(data):
    assert (data.device_kind, data.arch) == ("recorded", "gfx950_mi355x")
    assert "10cdca2d64d1193f936e9bc2dca8338f17938e67" in data.source
    assert len(data.problem) == np.count_nonzero(data.ok) == 2404
    assert set(data.candidates["resources_from"]) == {"estimated"} and (data.candidates["lds_bytes"] > 0).all()
    assert read_recording(FOLDER).between_runs["forward_bf16"].pairs == 39


def test_the_formula_alone_picks_well(data):
    """It was made of other times; the aim for real rows that no model has seen is a mean of 98 and a P10 of 93."""
    rows = np.flatnonzero(data.ok)
    says = Formula(data.problems, data.candidates, MI355X, FormulaPrior(weight=1.0, coefficients=COEFFICIENTS))
    scores = np.full((len(data.problems), len(data.candidates)), -np.inf)
    scores[data.problem[rows], data.candidate[rows]] = says.score(data.problem[rows], data.candidate[rows])
    every = np.arange(len(scores))
    reached = data.grid(every)[every, scores.argmax(axis=1)]
    assert reached.mean() > 0.985 and np.quantile(reached, 0.1) > 0.95
