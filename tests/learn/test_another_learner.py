"""The examples of docs/research.md for another learner and another feature, and what a learner must not lack."""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path

import learning_samples as samples
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.judge.baselines import score_baselines
from tileseer.judge.ranking import rank_held_out
from tileseer.learn.features import Features
from tileseer.learn.learner import class_of
from tileseer.learn.model import Model
from tileseer.libraries.cutlass.library import CUTLASS
from tileseer.libraries.features.table import Feature

ROOT = Path(__file__).parents[2]


def example(heading):
    """The Python code of a section."""
    section = (ROOT / "docs/research.md").read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
    assert code.count("\n") <= 45
    return code


@pytest.fixture
def learner(tmp_path, monkeypatch):
    """The name of the learner of the page, in a file in the folder of the run."""
    (tmp_path / "my_learner.py").write_text(example("Another learner"))
    monkeypatch.chdir(tmp_path)
    yield "my_learner:Linear"
    sys.modules.pop("my_learner", None)


def test_a_learner_from_outside_is_trained_kept_and_judged_like_ours(learner, tmp_path):
    data = samples.measured()
    trained = samples.train(data, samples.product(), samples.changed(learner=learner))
    trained.save(tmp_path / "made")
    with pytest.raises(UserError, match=r"feature_spec\.json: params.learner is 'my_learner:Linear', whose file could"):
        Model.read(tmp_path / "made")
    model = Model.read(tmp_path / "made", own=True)
    np.testing.assert_array_equal(model.predict(data.problems), trained.model.predict(data.problems))
    scored = rank_held_out(model, data)
    assert scored.picked.mean() > score_baselines(scored, model.hardware)["random_supported"].mean()
    assert 0 < trained.manifest.out_of_fold_efficiency.mean < 100


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_other:Linear", "there is no module my_other; put its file into the folder of the run"),
        ("my.other:Linear", "there is no module my.other"),
        ("my_learner:Other", "my_learner has no Other"),
        ("my_learner:Line", "the class has no method prepare"),
    ],
)
def test_a_learner_that_cannot_be_used_is_a_user_error(learner, name, message):
    with pytest.raises(UserError, match=f"model.learner: {name}: {message}"):
        class_of(name)


def test_a_picker_from_outside_is_judged():
    names = {}
    exec(compile(example("A picker of yours"), "research.md", "exec"), names)
    assert 0 < names["mean_efficiency"](ROOT / "config/recorded/sm_90/forward_bf16") < 1


def test_another_feature_is_one_entry_of_a_set(monkeypatch):
    monkeypatch.setitem(CUTLASS.features, "cutlass", CUTLASS.features["cutlass"])
    names = {}
    exec(compile(example("Another feature"), "research.md", "exec"), names)
    with_it = names["features_of"](samples.product())
    assert with_it.names.count("height_rest") == 1


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda problem: problem["H"], r"KeyError: 'H' \(test_another_learner.py, line \d+\)"),
        (lambda problem: problem["Hi"] if problem["Hi"] > 8 else 8, "ValueError: The truth value"),
        (lambda problem, candidate: problem["Hi"], "TypeError: .*missing 1 required positional argument"),
        (lambda problem: None, "the formula gives .*None.*, not a number for each row"),
        (lambda problem: 8, "the formula gives .*8.*, not a number for each row"),
        (lambda problem: ["tall"] * len(problem["Hi"]), "the formula gives .*tall.*, not a number for each row"),
    ],
)
def test_a_mistake_of_a_feature_is_told_with_its_name(formula, message, monkeypatch):
    ours = CUTLASS.features["cutlass"]
    mine = Feature("mine", "1", "a mistake", formula)
    monkeypatch.setitem(CUTLASS.features, "cutlass", replace(ours, problem=(*ours.problem, mine)))
    features, columns = Features.of("cutlass", samples.product(), ["mine"]), {"Hi": np.ones(3)}
    with pytest.raises(UserError, match=f"^feature mine: {message}"):
        features.gather(columns, {}, np.arange(3), np.arange(3))


MISTAKEN = {
    "making it with a recipe: TypeError": {"def __init__(self, recipe): pass": "def __init__(self): pass"},
    "prepare: AttributeError": {"return data": "return data.nothing"},
    "fit: TypeError": {"def fit(self, prepared, rows)": "def fit(self, prepared)"},
    "fit returns NoneType, which has no method score": {"return self": "return None"},
    "score: TypeError": {"problems, candidates, offered": "problems, candidates"},
    "score: ValueError": {"np.zeros(offered.shape)": "'text'"},
    r"score returns the shape \(\d+,\), not": {"np.zeros(offered.shape)": "np.zeros(len(problems))"},
    "score returns nan for a pair that is offered": {"np.zeros(offered.shape)": "np.full(offered.shape, np.nan)"},
    "importing mistaken: ZeroDivisionError": {"import numpy": "1 / 0\nimport numpy"},
    "importing mistaken: SyntaxError": {"import numpy": "import import numpy"},
    "importing mistaken: ModuleNotFoundError": {"import numpy": "import nothing_here\nimport numpy"},
    "importing mistaken: SystemExit": {"import numpy": "raise SystemExit(3)\nimport numpy"},
    "what `fit` returns cannot be pickled": {"return self": "self.f = lambda: 0; return self"},
}


@pytest.mark.parametrize("message", MISTAKEN)
def test_a_mistake_of_a_learner_is_told_with_its_name(message, tmp_path, monkeypatch):
    text = """
import numpy as np

class Mine:
    def __init__(self, recipe): pass
    def prepare(self, data): return data
    def fit(self, prepared, rows): return self
    def score(self, problems, candidates, offered): return np.zeros(offered.shape)
"""
    for right, wrong in MISTAKEN[message].items():
        assert right in text
        text = text.replace(right, wrong, 1)
    (tmp_path / "mistaken.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(UserError, match=f"model.learner: mistaken:Mine: {message}"):
        samples.train(samples.measured(), samples.product(), samples.changed(learner="mistaken:Mine")).save(tmp_path)
    sys.modules.pop("mistaken", None)
