"""The measuring driver and the fake kernels, compiled for the host backend once a test run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tilewright.bench import native

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


def build(folder: Path) -> tuple[str, str]:
    """Return the paths of driver and fake kernels, built into ``folder``."""
    include = ROOT / native.SOURCES
    libraries = {"driver.so": include / native.DRIVER_SOURCE, "fake.so": ROOT / "tests/bench/fake_kernels.cpp"}
    for name, source in libraries.items():
        command = native.command("host", COMPILER, "", [source], folder / name, include)
        native.build([*command, "-Wall", "-Wextra", "-Werror"])
    return str(folder / "driver.so"), str(folder / "fake.so")
