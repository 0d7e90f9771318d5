"""PickBench judges an entry on layers that it has not seen."""

import importlib.util
import json
import sys

import numpy as np
import pandas as pd
import pytest
from repository import ROOT

BENCH = ROOT / "benchmarks/pickbench"
ENTRY = """
SEEN = []
def learn(problems, candidates, milliseconds):
    SEEN.append(set(problems["problem_key"]))
def pick(problems, candidates):
    assert not SEEN[0] & set(problems["problem_key"])
    return {scores}
"""


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("pickbench", BENCH / "pickbench.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pickbench"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(bench, tmp_path, monkeypatch, capsys):
    def judged(scores, track="mi355x"):
        (tmp_path / "entry.py").write_text(ENTRY.format(scores=scores))
        monkeypatch.setattr(sys, "argv", ["pickbench", track, str(tmp_path / "entry.py")])
        code = bench.main()
        said = capsys.readouterr()
        return json.loads(said.out) if code == 0 else said.err

    return judged


def rows(score, times):
    return pd.DataFrame({"part": 0, "problem": 0, "number": 0, "score": score, "milliseconds": times})


def test_the_highest_score_is_picked_and_a_row_without_one_never(bench):
    part = [bench.Part(pd.DataFrame(), pd.DataFrame(), pd.Series([1.0]))]
    found = bench.judge(rows([1.0, 3.0, 2.0, np.nan], [4.0, 2.0, 1.0, 0.5]), part).iloc[0]
    assert (found["efficiency"], found["efficiency_of_2"], found["best_us"]) == (0.25, 0.5, 500.0)
    nothing = bench.judge(rows([np.nan] * 2, [1.0, 2.0]), part).iloc[0]
    assert nothing["efficiency"] == 0.0


def test_an_entry_learns_from_other_layers_and_is_judged_against_a_fixed_order(run):
    found = run("[len(name) % 7 for name in candidates['candidate']]")
    assert found["layers"] > 20 and found["interval"][0] < found["mean"] < found["interval"][1]
    assert found["sum_over_best"] > 1 and found["best_of_2"] > found["mean"] and found["possible_mean"] > 95


@pytest.mark.parametrize("scores", ["[1.0]", "None"])
def test_scores_of_another_shape_are_refused(run, scores):
    assert "one for each row" in run(scores)


def test_a_series_of_other_rows_is_refused(run):
    assert "with an index of its own; keep that of" in run("candidates.groupby('kernel')['place'].sum()")


@pytest.mark.parametrize("scores", ["candidates['name']", "candidates.name"])
def test_a_column_that_is_not_there_is_told_with_those_that_are(run, scores):
    assert "candidates have candidate, kernel, place" in run(scores)


def test_a_track_of_a_board_that_is_not_here_asks_for_its_recording(run):
    assert "--recording" in run("None", "mi210-to-mi250x")


@pytest.mark.parametrize("entry", sorted((BENCH / "entries").glob("*.py")), ids=lambda path: path.stem)
def test_entries_have_the_functions_of_the_page_in_fifty_lines(bench, entry):
    assert callable(bench.load_entry(entry).pick) and len(entry.read_text().splitlines()) <= 50


def test_a_file_that_is_no_entry_is_refused(bench, tmp_path):
    from tileseer.core.errors import UserError

    (tmp_path / "entry.py").write_text("")
    with pytest.raises(UserError, match="no function pick"):
        bench.load_entry(tmp_path / "entry.py")
