"""Settings of all tests, and the host's measuring driver for those of measuring and of libraries."""

import os
import random
from itertools import groupby

import pytest
from host_library import COMPILER, build
from hypothesis import settings

# No deadline: a busy machine is no defect. In CI the examples are the same on every run, so more of them find little.
settings.register_profile("tileseer", deadline=None, max_examples=40, derandomize="CI" in os.environ)
settings.load_profile("tileseer")

SEED = "TILESEER_TEST_SEED"
"""Variable with the seed of the order of modules; without it there is another order on every run."""
LONGEST = ("test_kills.py", "test_rebuild.py")


def pytest_configure():
    # In the environment, from where the workers of xdist have it: all need the same order.
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(10**6)))


def pytest_report_header():
    return f"random order of modules: {SEED}={os.environ[SEED]}"


def pytest_collection_modifyitems(items):
    """Shuffle the modules, since no test may depend on another module's.

    The longest stand where two workers begin: each takes one half, and steals from the end of the other's.
    """
    modules = [[*tests] for _, tests in groupby(items, key=lambda item: item.path)]
    random.Random(os.environ[SEED]).shuffle(modules)
    modules.sort(key=lambda tests: tests[0].path.name not in LONGEST)
    hands = [], []
    for tests in modules:
        min(hands, key=len).extend(tests)
    # The shorter hand comes last: so the second half begins at or before its first test.
    items[:] = [item for hand in sorted(hands, key=len, reverse=True) for item in hand]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Paths of the measuring driver for the host backend and of the fake kernels."""
    if COMPILER is None:
        pytest.skip("no host C++ compiler (g++, clang++ or CXX)")
    return build(tmp_path_factory.mktemp("libraries"))
