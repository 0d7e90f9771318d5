"""CUTLASS 2.x has one API level, and the templates write it without a table of names."""

import importlib.util
import os
from pathlib import Path

from tileseer.families.library import Library, brought

NEWEST = ""


def _places() -> list[Path]:
    named = os.environ.get("CUTLASS_PATH", "")
    package = importlib.util.find_spec("cutlass_library")
    places = [Path(named)] if named else []
    places += [Path(package.origin).parent / "source"] if package and package.origin else []
    return [*places, brought("cuda-toolchain") / "cutlass"]


LIBRARY = Library(
    "CUTLASS headers",
    "cutlass",
    "cutlass",
    "include/cutlass/cutlass.h",
    "run `make cuda-toolchain`, or set cutlass.root to the top folder of a CUTLASS tree",
    _places,
)


def detect(table: str | Path, root: Path) -> str:
    """API level of a tree."""
    return NEWEST
