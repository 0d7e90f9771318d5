"""Settings of all tests."""

import os
from itertools import groupby

from hypothesis import settings

# No deadline: a busy machine is no defect. In CI the examples are the same on every run.
settings.register_profile("tileseer", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tileseer")


def pytest_collection_modifyitems(items):
    """Put the long tests where two workers begin: each takes one half, and steals from the end of the other's."""
    modules = [[*tests] for _, tests in groupby(items, key=lambda item: item.path)]
    modules.sort(key=lambda tests: _ORDER.get(tests[0].path.name) or _ORDER.get(tests[0].path.parent.name, 9))
    hands = [], []
    for tests in modules:
        min(hands, key=len).extend(tests)
    # The shorter hand comes last: so the second half begins at or before its first test.
    items[:] = [item for hand in sorted(hands, key=len, reverse=True) for item in hand]


_ORDER = {"test_fault_suite.py": 1, "test_rebuild.py": 2, "workflow": 3, "report": 4, "toolchain": 5}
"""Modules and folders with long tests."""
