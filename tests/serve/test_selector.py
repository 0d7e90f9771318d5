"""Selection from a published directory, in Python and on the command line."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from published_models import LAYER, WORD, let_the_hashes_fit

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.learn.learners.trees.scorer import LEAST_EFFICIENCY, read_trees
from tileseer.learn.model import write_table
from tileseer.problems import problem as problems
from tileseer.problems.problem import Problem


def test_ranks_supported_candidates_by_the_scores_of_the_model(selector, model):
    problem = Problem.from_dims("forward", "bf16", **LAYER)
    ranked = selector.rank(problem)
    scores = model.predict(problems.problem_frame([problem]))[0]
    assert {row["candidate"]: row["score"] for row in ranked} == {
        name: score for name, score in zip(model.pool["candidate"], scores, strict=True) if np.isfinite(score)
    }
    score = np.array([row["score"] for row in ranked])
    assert (np.diff(score) <= 0).all() and [row["rank"] for row in ranked] == [*range(1, len(ranked) + 1)]
    efficiency = np.maximum(1 + score, LEAST_EFFICIENCY)
    assert [row["predicted_time"] for row in ranked] == pytest.approx(100 * efficiency[0] / efficiency)
    assert [row["predicted_efficiency"] for row in ranked] == pytest.approx(np.minimum(100 * efficiency, 100))


def test_nothing_supported_is_an_empty_ranking(selector):
    assert selector.rank(Problem.from_dims("forward", "bf16", N=1, C=3, K=5, Hi=9, Wi=9)) == []


def test_a_problem_of_another_operation_is_refused(selector):
    with pytest.raises(UserError, match="bwd_data"):
        selector.rank(Problem.from_dims("bwd_data", "bf16", **LAYER))


def test_a_damaged_model_text_is_a_user_error(model, tmp_path):
    (tmp_path / "model").write_text("no model")
    with pytest.raises(UserError, match="LightGBM"):
        read_trees(tmp_path / "model", model.spec)
    with pytest.raises(UserError, match="features"):
        (tmp_path / "model").write_text(model.scorer.text)
        read_trees(tmp_path / "model", model.spec.model_copy(update={"feature_names": ["another"]}))


@pytest.mark.parametrize(
    ("word", "left_out"),
    [("N=8,K=64,Wi=56", "C, Hi"), ("N=8,C=64,K=64,Hi=56,Wi=56,Y=3,pad_h=1", "X"), ("N=8,C=64,K=64,Hi=56,Wi=56", "")],
)
def test_the_problem_is_repeated_and_a_size_that_is_missing_is_named(models, word, left_out, capsys):
    assert main.main(["select", str(models), "--problem", word]) in (0, 1)
    printed = capsys.readouterr()
    warning = f"warning: --problem has no {left_out}: taken as 1\n" if left_out else ""
    assert [line for line in printed.err.splitlines(True) if "taken as" in line] == ([warning] if warning else [])
    repeated = printed.out.splitlines()[1].removeprefix("problem: ")
    assert main.main(["select", str(models), "--problem", repeated]) in (0, 1)
    assert capsys.readouterr().out == printed.out


def test_the_command_prints_the_label_and_the_ranking(models, selector, capsys):
    assert main.main(["select", str(models), "--problem", WORD, "--json", "--top", "2"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["device_kind"] == "simulated" and printed["problem"]["Hi"] == 56
    assert main.main(["select", str(models), "--problem", WORD, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "device kind: simulated" in lines[0]
    best = [row["kernel"] for row in selector.rank(Problem.from_dims("forward", "bf16", **LAYER))]
    known = next(number for number, line in enumerate(lines) if line.startswith("evidence: "))
    assert lines[known + 1].startswith("expected: ") and printed["evidence"] == printed["outlook"]["evidence"]
    assert lines[-2].endswith(best[0]) and lines[-1].endswith(best[1])
    assert [row["kernel"] for row in printed["candidates"]] == best[:2]


def test_a_pick_from_outside_is_offered_as_a_guess(models, capsys):
    far = "N=2,C=64,K=64,Hi=900,Wi=900,Y=7,X=7,pad_h=3,pad_w=3"
    assert main.main(["select", str(models), "--problem", far]) == 0
    said = capsys.readouterr().out
    assert "\nevidence: outside (a guess" in said and "\nadvice: nothing says that the first of a fixed order" in said
    assert main.main(["select", str(models), "--problem", far, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["outlook"]
    assert told["evidence"] == "outside" and not told["gains"]


def test_the_command_names_a_kernel_by_all_of_its_names(models, selector, tmp_path, capsys):
    own = shutil.copytree(models, tmp_path / "models")
    path = own / selector.folder.name / model_files.CANDIDATES
    pool = pd.read_parquet(path)
    best = [row["kernel"] for row in selector.rank(Problem.from_dims("forward", "bf16", **LAYER))]
    pool.loc[pool["kernel"] == best[1], "aliases"] = "other another"
    write_table(path, pool)
    let_the_hashes_fit(own)
    assert main.main(["select", str(own), "--problem", WORD, "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1:] == [f"same machine code as {best[1]}: other, another"]
    assert main.main(["select", str(own), "--problem", WORD, "--top", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["candidates"]
    assert [row["aliases"] for row in told] == [[], ["other", "another"]]


def test_an_unsupported_problem_gives_status_1_and_says_so(models, capsys):
    assert main.main(["select", str(models), "--problem", "N=1,C=3,K=5,Hi=9,Wi=9"]) == 1
    said = capsys.readouterr().err
    assert "no candidate supports the problem: " in said and "a vector width does not divide" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no problem given"),
        (["--problem", "N=8,C"], "NAME=NUMBER"),
        (["--problem", "N=8,N=9"], "twice"),
        (["--problem", "Q=8"], "unknown field 'Q'"),
        (["--problem", "N=8,C=7,G=2"], "not a multiple of G"),
        (["--variant", "bwd_weight", "--problem", WORD], "no model of operation 'bwd_weight_bf16'"),
    ],
)
def test_mistakes_are_one_line(models, capsys, arguments, message):
    assert main.main(["select", str(models), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_first_candidates_of_the_command_are_the_short_list(models, selector, capsys):
    problem = Problem.from_dims("forward", "bf16", **LAYER)
    assert main.main(["select", str(models), "--problem", WORD, "--top", "3", "--json"]) == 0
    printed = [row["candidate"] for row in json.loads(capsys.readouterr().out)["candidates"]]
    listed = selector.shortlist(problem, 3, use_known=False)
    assert [row["candidate"] for row in listed] == printed and selector.rank(problem)[:3] == listed[:3]


def test_the_short_list_has_what_runs_without_timing(selector):
    every = list(selector._measured)
    lists = [
        (selector.shortlist(problem, 1), selector.fastest_measured(problem))
        for problem in problems.problems_of_rows("forward", "bf16", every)
    ]
    assert all(known in [row["candidate"] for row in listed] for listed, known in lists)
    assert {len(listed) for listed, _ in lists} == {1, 2}
    assert selector.shortlist(Problem.from_dims("forward", "bf16", N=1, C=3, K=5, Hi=9, Wi=9), 3) == []
