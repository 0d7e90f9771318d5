"""The examples of docs/research.md for another learner and another feature, run on the small world."""

import re
from pathlib import Path

import learning_samples as samples
import numpy as np
import pytest

from tileseer.learn.features import FEATURE_SETS
from tileseer.learn.validation import validate_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/research.md"


def examples(heading):
    """The code blocks of a section."""
    section = PAGE.read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"(?ms)^```python\n(.*?)^```$", section)


def run(*codes):
    """The names that the blocks define, run one after the other in one module."""
    names = {"__name__": "example"}
    for code in codes:
        assert code.count("\n") <= 40
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_another_learner_is_one_fit_and_is_validated_like_ours():
    data = samples.measured()
    model = run(examples("Another learner")[0])["fit"](data, samples.recipe())
    scores = model.predict(data.problems, data.candidates)
    assert scores.shape == (len(data.problems), len(data.candidates)) and np.isfinite(scores).any(axis=1).all()
    report = validate_model(model, data)
    assert report.efficiency.mean > report.baselines["random_supported"].efficiency.mean


def test_another_learner_is_compared_with_the_shipped_one(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("tileseer.dataset.dataset.Dataset.read", lambda path: samples.measured())
    run(*examples("Another learner"))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["linear", "shipped"]


def test_another_feature_is_one_entry_of_a_set(monkeypatch):
    monkeypatch.setattr("tileseer.learn.features.FEATURE_SETS", FEATURE_SETS.copy())
    names = run(*examples("Another feature"))
    data = samples.measured()
    with_it = names["features_of"](samples.product())
    column = with_it.names.index(names["FEATURE"].name)
    matrix = with_it.matrix(data.problems, data.candidates, data.problem, data.candidate)
    assert matrix[:, column] == pytest.approx(data.problems["Hi"].to_numpy()[data.problem] % 8)
