"""The examples of docs/research.md for another learner and another feature, and what a learner must not lack."""

import re
import sys
from pathlib import Path

import learning_samples as samples
import numpy as np
import pytest

from tileseer.core.errors import UserError
from tileseer.kernels.cutlass.library import CUTLASS
from tileseer.learn.baselines import score_baselines
from tileseer.learn.learner import class_of
from tileseer.learn.model import Model
from tileseer.learn.ranking import rank_held_out

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
    model = Model.read(tmp_path / "made")
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


def test_another_feature_is_one_entry_of_a_set(monkeypatch):
    monkeypatch.setitem(CUTLASS.features, "cutlass", CUTLASS.features["cutlass"])
    names = {}
    exec(compile(example("Another feature"), "research.md", "exec"), names)
    with_it = names["features_of"](samples.product())
    assert with_it.names.count("height_rest") == 1
