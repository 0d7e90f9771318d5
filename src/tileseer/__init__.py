"""Tileseer learns which CK Tile grouped-convolution kernel to run on a GPU."""

import importlib
import sys
from typing import Any

# On a full disk Python leaves byte code that is cut short, and fails on it ever after. Without it a job starts as fast.
sys.dont_write_bytecode = True


def __getattr__(name: str) -> Any:
    """Return ``tileseer.torch`` to a program that imports ``tileseer`` alone; say in which module a name is."""
    if name == "torch":
        return importlib.import_module("tileseer.torch")
    for module, names in _PLACES.items():
        if name in names.split():
            # The message of an ``AttributeError`` is lost to ``from tileseer import``.
            raise ImportError(f"{name} is in tileseer.{module}; write: from tileseer.{module} import {name}")
    raise AttributeError(f"module 'tileseer' has no attribute {name!r}")


_PLACES = {
    "torch": "enable enabled disable gains save",
    "serve.selector": "Selector",
    "serve.tuned": "read_choices",
    "problems.problem": "Problem problem_frame",
    "data.dataset": "Dataset",
    "learn.model": "Model",
    "learn.features": "Features",
    "libraries.features.table": "Feature",
    "judge.ranking": "rank_by rank_held_out rank_left_out recipe_of",
    "judge.evaluation": "evaluate",
}
"""What is looked for here, and in the folders of these modules, by the module that has it."""
