"""One published model for the tests that only read it."""

import published_models
import pytest

from tileseer.serve.selector import Selector


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folder of a published model and of what it was made from; nobody changes it."""
    folder = tmp_path_factory.mktemp("published")
    published_models.publish(folder)
    return folder


@pytest.fixture(scope="session")
def models(made):
    return made / "models"


@pytest.fixture(scope="session")
def selector(models):
    return Selector.read(models, "forward_bf16")


@pytest.fixture(scope="session")
def model(selector):
    return selector.model
