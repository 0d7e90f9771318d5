"""Where the CUTLASS headers are."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tileseer.compile.compiler import brought
from tileseer.compile.header_tree import HeaderTree
from tileseer.core.errors import UserError
from tileseer.settings.compile import CutlassSettings

HOW = "run `make cuda-toolchain`, or set cutlass.root to the top folder of a CUTLASS tree"
_MARK = "include/cutlass/cutlass.h"


def find(settings: CutlassSettings) -> Path:
    """Return the tree of the settings, of $CUTLASS_PATH, of PyPI's nvidia-cutlass or of ``make cuda-toolchain``."""
    if settings.root:
        root = Path(settings.root).expanduser()
        if not (root / _MARK).is_file():
            raise UserError(f"cutlass.root: {root} has no file {_MARK}; {HOW}")
        return root
    named = os.environ.get("CUTLASS_PATH", "")
    package = importlib.util.find_spec("cutlass_library")
    places = [Path(named)] if named else []
    places += [Path(package.origin).parent / "source"] if package and package.origin else []
    places += [brought("cuda-toolchain") / "cutlass"]
    for root in places:
        if (root / _MARK).is_file():
            return root
    raise UserError(f"no CUTLASS headers in {', '.join(map(str, places))}; {HOW}")


def tree(settings: CutlassSettings) -> HeaderTree:
    """Return the headers."""
    return HeaderTree(find(settings) / "include")
