"""Learners of strangers: a package that installs itself, trained, published and selected from like ours."""

import sys
from importlib.metadata import EntryPoint

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from cpp_selectors import assert_cpp_picks_alike
from installed import install
from published_models import PAGE, parts

from tileseer.core import entry_points
from tileseer.core.errors import UserError
from tileseer.learn import learner as learners
from tileseer.learn.learner import learner_class
from tileseer.problems.problem import DIMS
from tileseer.serve import publication
from tileseer.serve.selector import Selector
from tileseer.testing.learner import LearnerSuite


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The package of ``tests/packages``, for this process."""
    folder = install("nearest_learner", tmp_path_factory.mktemp("package"))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("nearest_learner", None)


class TestOurTrees(LearnerSuite):
    learner = "trees"


class TestNearest(LearnerSuite):
    learner = "nearest"


class TestNearestInPython(LearnerSuite):
    learner = "nearest_in_python"


@pytest.mark.parametrize("learner", ["nearest", "nearest_in_python"])
def test_it_is_published_and_selected_from_with_and_without_a_header(learner, tmp_path):
    data = samples.measured()
    trained = samples.train(data, samples.MI355X, samples.changed(learner=learner))
    made = parts(tmp_path / data.operation, data, trained)
    publication.publish_models(*([part] for part in made), tmp_path / "models", page=PAGE)
    selector = Selector.read(tmp_path / "models", "forward_bf16")
    shapes = data.problems[list(DIMS)].to_numpy(np.int64)
    assert (selector.select(shapes).candidate >= 0).mean() > 0.5
    header = next((tmp_path / "models").rglob("selector.hpp"))
    if learner == "nearest":
        assert_cpp_picks_alike(tmp_path, selector, shapes, known=0)
    else:
        assert header.read_text() == '#error "the learner of this model writes no C++: pick with Python"\n'


def test_a_learner_that_is_not_installed_is_a_user_error():
    with pytest.raises(UserError, match="there is no learner 'other'; installed are nearest, nearest_in_python, trees"):
        learner_class("other")
    with pytest.raises(UserError, match=r"'Nearest'; installed are .*; is it nearest\?"):
        learner_class("Nearest")


MINE = """
import numpy as np
from tileseer.learn.learner import Learner, Scorer
class S(Scorer):
    FILES = ("a.json",)
    def score(self, problems, candidates, offered=None):
        return np.random.default_rng().random((len(problems), len(candidates)))
    def save(self, folder):
        (folder / "b.json").touch()
    @classmethod
    def read(cls, folder):
        pass
class Mine(Learner):
    scorer = S
    def prepare(self, dataset): pass
    def fit(self, prepared, rows): pass
"""


@pytest.mark.parametrize(
    ("own", "others", "says"),
    [
        ("Mine = len", "", "learner mine: .*len.* is no subclass of tileseer.learn.learner.Learner"),
        ("", "", r"entry point mine \(mine_a:Mine\): .* has no attribute 'Mine'; correct it and"),
        ("if True", "", r"mine \(mine_a:Mine\) cannot .*: SyntaxError: expected ':' \(mine_a.py, line 1\)"),
        ("\n1 / 0", "", r"mine \(mine_a:Mine\) cannot .*: ZeroDivisionError: division by zero \(mine_a.py, line 2\)"),
        (
            MINE.replace('    FILES = ("a.json",)', ""),
            "",
            "mine: FILES of its scorer S is None; give the names",
        ),
        (MINE, "os:path", r"entry point mine \(mine_a:Mine\) and .* \(os:path\) have the same name"),
    ],
)
def test_a_broken_learner_is_named_and_stops_no_other(own, others, says, tmp_path, monkeypatch):
    (tmp_path / "mine_a.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_a", raising=False)
    points = [EntryPoint("mine", value, learners.GROUP) for value in filter(None, ("mine_a:Mine", others))]
    monkeypatch.setattr(entry_points.metadata, "entry_points", lambda group: points)
    with pytest.raises(UserError, match=says) as told:
        learner_class("mine")
    assert "\n" not in str(told.value) and learner_class("trees")


def test_a_scorer_that_does_not_what_it_should(tmp_path, monkeypatch):
    namespace = {"__name__": "mine"}
    exec(MINE, namespace)
    kind = namespace["Mine"]
    monkeypatch.setattr(learners, "learner_class", lambda name: kind)
    with pytest.raises(UserError, match=r"learner mine: save wrote no a.json, which FILES of S names"):
        learners.save_scorer(kind.scorer(), "mine", tmp_path)
    (tmp_path / "b.json").unlink()
    (tmp_path / "a.json").touch()
    with pytest.raises(UserError, match=r"learner mine: save wrote b.json, which FILES of S does not name"):
        learners.save_scorer(kind.scorer(), "mine", tmp_path)
    with pytest.raises(UserError, match=r"learner mine: S.read returned None; return a"):
        learners.read_scorer("mine", tmp_path)
    with pytest.raises(UserError, match=r"learner mine: Mine.prepare returned None; return a CppPart or str \("):
        learners.result_of("mine", kind(None).prepare, None, kind=learners.CppPart | str)
    with pytest.raises(UserError, match=r"learner mine: TypeError: .*prepare\(\) missing 1 required"):
        learners.result_of("mine", kind(None).prepare)
    table = pd.DataFrame({"N": [1, 2]})
    with pytest.raises(UserError, match="learner mine: a pair gets other scores in another call"):
        learners.scores_of(kind.scorer(), "mine", table, table, np.ones((2, 2), bool))
