"""The measuring driver and the fake kernels, compiled for the host backend once a test run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from repository import CONFIG, ROOT

from tileseer.build import modules
from tileseer.build.compiler import NATIVE_SOURCES
from tileseer.measure.session import Session

COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
INCLUDE = ROOT / NATIVE_SOURCES


def compiled(source: Path, output: Path) -> str:
    """Return the path of a library made of one source."""
    command = modules.library_command("host", COMPILER, "", [source], output, INCLUDE)
    modules.run_command([*command, "-Wall", "-Wextra", "-Werror"])
    return str(output)


def build(folder: Path) -> tuple[str, str]:
    """Return the paths of driver and fake kernels, built into ``folder``."""
    driver = compiled(INCLUDE / modules.DRIVER_SOURCE, folder / "driver.so")
    return driver, compiled(ROOT / "tests/builders/fake_kernels.cpp", folder / "fake.so")


def session(journal: Path | None, *, driver: str | None = None, modules=None, lock=None, **settings: object) -> Session:
    """Return a session of gfx950 whose settings of the benchmark and of the lock are given."""
    return Session(
        arch="gfx950",
        operation="forward_bf16",
        options={"benchmark": settings, "lock": lock or {}},
        hardware_table=CONFIG / "hardware.yaml",
        product="gfx950_mi355x",
        coefficients=CONFIG / "simulated_device.yaml",
        journal=journal,
        driver=Path(driver) if driver else None,
        modules=modules or {},
    )
