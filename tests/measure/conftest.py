"""Libraries of fake kernels to measure without a GPU."""

from __future__ import annotations

import pytest
from host_library import COMPILER, build


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Paths of the measuring driver for the host backend and of the fake kernels."""
    if COMPILER is None:
        pytest.skip("no host C++ compiler (g++, clang++ or CXX)")
    return build(tmp_path_factory.mktemp("libraries"))
