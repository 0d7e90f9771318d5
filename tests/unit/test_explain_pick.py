"""Why a kernel is picked: what is said adds up to the scores, and the measured problems are those of the model."""

import json

import numpy as np
import pytest
from test_compare import dataset
from test_selection import LAYER, WORD, models, selector  # noqa: F401

from tileseer.cli import main
from tileseer.client import explain_pick
from tileseer.conv.problem import DIMS, Problem, from_frame
from tileseer.conv.problem import frame as problem_frame
from tileseer.core.errors import UserError

WANTED = Problem.from_dims("forward", "bf16", **LAYER)


def test_the_parts_add_up_to_what_the_pick_is_ahead(models, selector):  # noqa: F811
    ranked = selector.rank(WANTED)
    for against in (None, ranked["candidate"].iloc[-1]):
        found = explain_pick.explanation(models, WANTED, against=against).model_dump()
        other = ranked[ranked["candidate"] == found["against"]].iloc[0]
        assert found["score_ahead"] == pytest.approx(ranked["score"].iloc[0] - other["score"], abs=1e-5)
        parts = sum(c["contribution"] for c in found["contributions"]) + found["other_features"]
        assert parts == pytest.approx(found["score_ahead"], abs=1e-5)
        assert found["ranking"][0]["candidate"] == ranked["candidate"].iloc[0]
        assert found["device_kind"] == "simulated"


def test_the_nearest_problems_are_training_problems(models, selector):  # noqa: F811
    found = explain_pick.explanation(models, WANTED).model_dump()
    nearest = found["nearest_training_problems"]
    assert len(nearest) == explain_pick.NEAREST
    known = {tuple(row) for row in selector.known[list(DIMS)].to_numpy().tolist()}
    for row in nearest:
        assert tuple(row["problem"].values()) in known
        assert 0 <= row["out_of_fold_efficiency"] <= 100 and row["fastest"]


def test_a_training_problem_is_nearest_to_itself(models, selector):  # noqa: F811
    again = explain_pick.explanation(models, WANTED).model_dump()["nearest_training_problems"][-1]["problem"]
    found = explain_pick.explanation(models, Problem.from_dims("forward", "bf16", **again)).model_dump()
    assert found["nearest_training_problems"][0]["problem"] == again
    assert found["distance_percentile"] == 0 and found["outside_training"] == [] and found["fastest_measured"]


def test_a_dataset_adds_the_measured_times(models, tmp_path):  # noqa: F811
    path = dataset(tmp_path / "d.parquet")
    from tileseer.dataset.schema import load

    data = load(tmp_path / "d.parquet")
    row = int(np.flatnonzero(np.bincount(data.problem[data.status == 0]) > 5)[0])
    (measured,) = from_frame(data.problems.iloc[[row]])
    found = explain_pick.explanation(models, measured, top=50, measured=tmp_path / "d.parquet").model_dump()
    ok = [entry for entry in found["ranking"] if entry["measured_status"] == "ok"]
    assert ok and max(entry["measured_efficiency"] for entry in ok) == 100
    assert min(ok, key=lambda entry: entry["measured_ms"])["measured_efficiency"] == 100
    assert path and problem_frame([measured])["problem_key"].iloc[0] == data.problems["problem_key"].iloc[row]


def test_the_command_says_it_to_people_and_programs(models, capsys):  # noqa: F811
    call = ["explain", "pick", str(models), "--problem", WORD]
    assert main.main(call) == 0
    text = capsys.readouterr().out
    assert "device kind: simulated" in text and "all other features" in text and "nearest training problem" in text
    assert main.main([*call, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["command"] == "explain pick" and printed["ranking"][0]["candidate"] in text


def test_mistakes_are_named(models, tmp_path):  # noqa: F811
    with pytest.raises(UserError, match="--against 'nonsense'"):
        explain_pick.explanation(models, WANTED, against="nonsense").model_dump()
    with pytest.raises(UserError, match="no candidate"):
        explain_pick.explanation(models, Problem.from_dims("forward", "bf16", N=1, C=3, K=5, Hi=9, Wi=9))
    dataset(tmp_path / "d.parquet", operation="bwd_data_bf16")
    with pytest.raises(UserError, match="operation is bwd_data_bf16"):
        explain_pick.explanation(models, WANTED, measured=tmp_path / "d.parquet").model_dump()
