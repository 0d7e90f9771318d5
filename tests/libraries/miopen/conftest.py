"""Models of MIOpen's solvers, which take a while to make."""

import pytest
from published_models import publish_recording


@pytest.fixture(scope="session")
def solvers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("solvers")
    publish_recording(folder, "gfx90a_mi210", "forward_fp32", 24, "gfx90a_miopen")
    return folder / "models"
