"""Learners of strangers: a package that installs itself, trained, published and selected from like ours."""

import sys

import learning_samples as samples
import numpy as np
import pytest
from cpp_selectors import assert_cpp_picks_alike
from installed import install
from published_models import PAGE, parts

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
    trained = samples.train(data, samples.product(), samples.changed(learner=learner))
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


def test_a_learner_that_is_not_installed_is_a_user_error(monkeypatch):
    with pytest.raises(UserError, match="there is no learner 'other'; installed are nearest, nearest_in_python, trees"):
        learner_class("other")
    monkeypatch.setattr(learners, "load_entry_points", lambda group: {"mine": len})
    with pytest.raises(UserError, match=r"learner mine: .*len.* is no subclass of tileseer.learn.learner.Learner"):
        learner_class("mine")
