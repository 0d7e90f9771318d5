"""``tileseer stale``: stale picks between two measurements, and what to measure again first."""

import json

import learning_samples as samples
import numpy as np
import pytest
from test_publish import make

from tileseer.cli import main
from tileseer.client import staleness
from tileseer.core.errors import UserError
from tileseer.publish import model_folder

KEY = "64-56-56-3x3-128-28-28-{}-1x1-2x2-1x1-0-NCHW-FP16-F"
SOLVERS = ("GemmFwdRest", "ConvBinWinogradRxSf3x2", "ConvDirectNaiveConvFwd")


def database(path, rows):
    """A find-db with the times of ``SOLVERS`` for each batch size; None: it is not in the file."""
    lines = []
    for batch, times in rows.items():
        pairs = (f"{solver}:{ms},0,x" for solver, ms in zip(SOLVERS, times, strict=True) if ms is not None)
        lines.append(f"{KEY.format(batch)}={';'.join(pairs)}\n")
    path.write_text("".join(lines))
    return path


def test_stale_picks_and_what_keeping_them_costs(tmp_path, capsys):
    old = database(tmp_path / "old.fdb.txt", {1: (1, 2, 3), 2: (1, 2, 3), 4: (1, 2, 3), 8: (1, 2, None)})
    new = database(tmp_path / "new.fdb.txt", {1: (2, 1, 3), 2: (1, 1.5, 3), 4: (None, 2, 1), 16: (1, 2, 3)})
    assert main.main(["stale", str(old), str(new), "--json", "--output", str(tmp_path / "s.csv")]) == 0
    told = json.loads(capsys.readouterr().out)
    # Where the old pick is not in the new file (batch 4), the next one stands for it.
    assert (told["figures"]["problems"], told["figures"]["stale"]) == (3, 2)
    assert told["figures"]["efficiency"]["mean"] == pytest.approx(100 * (0.5 + 1 + 0.5) / 3, abs=1e-3)
    assert {(row["N"], row["new"].rpartition("_")[2]) for row in told["rows"]} == {(1, SOLVERS[1]), (4, SOLVERS[2])}
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{old}"], "give NEW, or --model and --budget"),
        (["{old}", "--budget", "3"], "give NEW, or --model and --budget"),
        (["{old}", "{old}", "--model", "m", "--budget", "3"], "give NEW, or --model and --budget"),
        (["{old}", "{old}", "--model", "m"], "give NEW, or --model and --budget"),
        (["{old}", "absent.txt"], "there is no such file"),
        (["{old}", "{other}"], "no problem with two candidates in common"),
        (["{old}", "{text}"], "no measured time in it"),
    ],
)
def test_mistakes_are_told(tmp_path, capsys, arguments, message):
    places = {
        "old": database(tmp_path / "old.txt", {1: (1, 2, 3)}),
        "other": database(tmp_path / "other.txt", {2: (1, 2, 3)}),
        "text": tmp_path / "notes.txt",
    }
    places["text"].write_text("notes\n")
    assert main.main(["stale", *(word.format(**places) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_the_closest_rivals_of_a_problem_come_first():
    problem, time = np.array([0, 0, 0, 1, 1, 2]), np.array([1.0, 1.1, 3.0, 2.0, 2.5, 1.0])
    assert staleness.behind(problem, time) == pytest.approx([0.1, 0.1, 2.0, 0.5, 0.5, np.inf])


def test_a_model_and_a_budget_name_pairs(tmp_path):
    training, report, serving = make(tmp_path, "forward")
    model_folder.publish([training], [report], [serving], tmp_path / "models")
    data = samples.measured("forward")
    ran = np.flatnonzero(~np.isnan(data.latency_ms))
    old = data.problems.iloc[data.problem[ran]].reset_index(drop=True)
    labels = data.candidates["candidate"].to_numpy()[data.candidate[ran]]
    old = old.assign(operation=data.operation, candidate=labels, ms=data.latency_ms[ran])
    rows = staleness.first(old, tmp_path / "models", 12)
    assert len(rows) == 12 and rows["behind"].is_monotonic_increasing
    assert (
        rows["behind"].iloc[0] == rows["behind"].iloc[1] and rows["problem_key"].iloc[0] == rows["problem_key"].iloc[1]
    )
    assert np.isfinite(staleness.scores(old, tmp_path / "models")).any()
    with pytest.raises(UserError, match="know no pair of OLD"):
        staleness.first(old.assign(candidate="another"), tmp_path / "models", 12)
