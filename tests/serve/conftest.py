"""Models of the small world for the tests that only read them."""

import pytest
from published_models import PAGE, make

from tileseer.serve import publication
from tileseer.serve.selector import Selector


@pytest.fixture(scope="session")
def forward(tmp_path_factory):
    """Training folder, evaluation and serving folder of one operation; nobody changes them."""
    return make(tmp_path_factory.mktemp("forward"), "forward")


@pytest.fixture(scope="session")
def weight(tmp_path_factory):
    """The same of another operation."""
    return make(tmp_path_factory.mktemp("weight"), "bwd_weight")


@pytest.fixture(scope="session")
def models(forward, tmp_path_factory):
    """A model directory of the first; nobody changes it."""
    folder = tmp_path_factory.mktemp("published") / "models"
    publication.publish_models(*([part] for part in forward), folder, page=PAGE)
    return folder


@pytest.fixture(scope="session")
def selector(models):
    return Selector.read(models, "forward_bf16")


@pytest.fixture(scope="session")
def model(selector):
    return selector.model
