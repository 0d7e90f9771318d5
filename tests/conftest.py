"""Settings of all tests."""

import os

from hypothesis import settings

# No deadline: a busy machine is no defect. In CI the examples are the same on every run.
settings.register_profile("tileseer", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tileseer")
