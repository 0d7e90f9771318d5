"""Tileseer learns which CK Tile grouped-convolution kernel to run on a GPU."""

import importlib
import sys
from typing import Any

# On a full disk Python leaves byte code that is cut short, and fails on it ever after. Without it a job starts as fast.
sys.dont_write_bytecode = True


def __getattr__(name: str) -> Any:
    """Return ``tileseer.torch`` to a program that imports ``tileseer`` alone."""
    if name == "torch":
        return importlib.import_module("tileseer.torch")
    meant = f"; is it tileseer.torch.{name}?" if name in ("enable", "enabled", "disable") else ""
    raise AttributeError(f"module 'tileseer' has no attribute {name!r}{meant}")
