"""The scripts of tools/ and benchmarks/ as modules, which no package holds."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load(name: str, folder: str = "tools") -> ModuleType:
    """Run a script of a folder and return it; the scripts that are loaded after it can import it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{folder}/{name}.py")
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
