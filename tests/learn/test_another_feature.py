"""The examples of docs/research.md for a picker and for another feature, and what a mistake in a formula says."""

import re
from dataclasses import replace

import learning_samples as samples
import numpy as np
import pytest
from repository import ROOT

from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.learn.features import Features
from tileseer.libraries.cutlass.library import CUTLASS
from tileseer.libraries.features.table import Feature


def example(heading):
    """The Python code of a section."""
    section = (ROOT / "docs/research.md").read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
    assert code.count("\n") <= 45
    return code


def test_a_picker_from_outside_is_judged():
    names = {}
    exec(compile(example("A picker of yours"), "research.md", "exec"), names)
    assert 0 < names["mean_efficiency"](ROOT / "config/recorded/sm_90/forward_bf16") < 1


def test_another_feature_is_one_entry_of_a_set(monkeypatch):
    monkeypatch.setitem(CUTLASS.features, "cutlass", CUTLASS.features["cutlass"])
    names = {}
    exec(compile(example("Another feature"), "research.md", "exec"), names)
    with_it = names["features_of"](samples.MI355X)
    assert with_it.names.count("height_rest") == 1
    mine = Feature("mine", "1", "a mistake", lambda problem: np.full(len(problem["Hi"]), np.inf))
    CUTLASS.features["cutlass"] = replace(names["OURS"], problem=(mine,))
    data = Dataset.read(ROOT / "config/recorded/sm_90/forward_bf16")
    with pytest.raises(UserError, match=r"^feature mine: the formula gives infinity or no number"):
        names["features_of"](samples.MI355X).matrix(data.problems, data.candidates, *np.zeros((2, 1), int))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda problem: problem["H"], r"KeyError: 'H' \(test_another_feature.py, line \d+\)"),
        (lambda problem: problem["Hi"] if problem["Hi"] > 8 else 8, "ValueError: The truth value"),
        (lambda problem, candidate: problem["Hi"], "TypeError: .*missing 1 required positional argument"),
        (lambda problem: None, "the formula gives .*None.*, not a number for each row"),
        (lambda problem: problem["Hi"][:2], "the formula gives 2 values for 3 rows"),
        (lambda problem: 8, "the formula gives .*8.*, not a number for each row"),
        (lambda problem: ["tall"] * len(problem["Hi"]), "the formula gives .*tall.*, not a number for each row"),
    ],
)
def test_a_mistake_of_a_feature_is_told_with_its_name(formula, message, monkeypatch):
    ours = CUTLASS.features["cutlass"]
    mine = Feature("mine", "1", "a mistake", formula)
    monkeypatch.setitem(CUTLASS.features, "cutlass", replace(ours, problem=(*ours.problem, mine)))
    features, columns = Features.of("cutlass", samples.MI355X, ["mine"]), {"Hi": np.ones(3)}
    with pytest.raises(UserError, match=f"^feature mine: {message}"):
        features.gather(columns, {}, np.arange(3), np.arange(3))
