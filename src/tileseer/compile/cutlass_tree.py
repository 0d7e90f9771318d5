"""The CUTLASS headers."""

import importlib.util
import os
from pathlib import Path

from tileseer.compile.compiler import brought
from tileseer.compile.header_tree import HeaderTree, find_root
from tileseer.settings.compile import CutlassSettings

HOW = "run `make cuda-toolchain`, or set cutlass.root to the top folder of a CUTLASS tree"


def find(settings: CutlassSettings) -> Path:
    """The tree of the settings, of $CUTLASS_PATH, of PyPI's nvidia-cutlass or of ``make cuda-toolchain``."""
    named = os.environ.get("CUTLASS_PATH", "")
    package = importlib.util.find_spec("cutlass_library")
    places = [Path(named)] if named else []
    places += [Path(package.origin).parent / "source"] if package and package.origin else []
    places += [brought("cuda-toolchain") / "cutlass"]
    return find_root("CUTLASS headers", "include/cutlass/cutlass.h", "cutlass.root", settings.root, places, HOW)


def tree(settings: CutlassSettings) -> HeaderTree:
    """The headers."""
    return HeaderTree(find(settings) / "include", "cutlass")
