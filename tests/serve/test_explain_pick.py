"""Why a kernel is picked: what is said adds up to the scores, and the measured problems are those of the model."""

import json

import pytest
from published_models import LAYER, WORD

from tileseer.cli import main
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve import explain_pick

WANTED = Problem.from_dims("forward", "bf16", **LAYER)


def test_the_parts_add_up_to_what_the_pick_is_ahead(models, selector):
    ranked = selector.rank(WANTED)
    for against in (None, ranked[-1]["candidate"]):
        found = explain_pick.explain_pick(models, WANTED, against=against).model_dump()
        other = next(row for row in ranked if row["candidate"] == found["against"])
        assert found["score_ahead"] == pytest.approx(ranked[0]["score"] - other["score"], abs=1e-5)
        parts = sum(c["contribution"] for c in found["contributions"]) + found["other_features"]
        assert parts == pytest.approx(found["score_ahead"], abs=1e-5)
        assert found["ranking"][0]["candidate"] == ranked[0]["candidate"]
        assert found["device_kind"] == "simulated"


def test_the_nearest_problems_are_measured(models, selector):
    found = explain_pick.explain_pick(models, WANTED).model_dump()
    nearest = found["nearest_measured_problems"]
    assert len(nearest) == explain_pick.PROBLEMS_SHOWN
    known = parquet.read_table(selector.folder / model_files.KNOWN).to_pandas()
    known = {tuple(row) for row in known[list(DIMS)].to_numpy().tolist()}
    for row in nearest:
        assert tuple(row["problem"].values()) in known
        assert row["fastest"] in selector.candidates


def test_a_measured_problem_is_nearest_to_itself(models, selector):
    again = explain_pick.explain_pick(models, WANTED).model_dump()["nearest_measured_problems"][-1]["problem"]
    found = explain_pick.explain_pick(models, Problem.from_dims("forward", "bf16", **again)).model_dump()
    assert found["nearest_measured_problems"][0]["problem"] == again
    assert found["nearest_measured_problems"][0]["octaves"] == 0 and found["evidence"] == "inside"
    assert found["fastest_measured"]


def test_the_command_says_it_to_people_and_programs(models, capsys):
    call = ["explain", str(models), "--problem", WORD]
    assert main.main(call) == 0
    text = capsys.readouterr().out
    assert "device kind: simulated" in text and "all other features" in text and "nearest measured problem" in text
    assert main.main([*call, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["command"] == "explain" and printed["ranking"][0]["candidate"] in text


def test_mistakes_are_named(models, tmp_path):
    with pytest.raises(UserError, match="--against 'nonsense' is no candidate"):
        explain_pick.explain_pick(models, WANTED, against="nonsense")
    with pytest.raises(UserError, match=r"no candidate of .* supports the problem: .* candidates: "):
        explain_pick.explain_pick(models, Problem.from_dims("forward", "bf16", N=1, C=3, K=5, Hi=9, Wi=9))


def test_why_a_candidate_cannot_run_the_problem_is_told(models, selector):
    refused = next(name for name in selector.candidates if "_3d_" in name)
    with pytest.raises(
        UserError, match=rf"--against {refused} cannot run the problem: the kernel is for another number of dim"
    ):
        explain_pick.explain_pick(models, WANTED, against=refused)
