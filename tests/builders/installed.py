"""Packages of strangers in ``tests/packages``, installed as pip does it."""

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[1] / "packages"


def install(name, folder):
    """Install a package into a folder for ``sys.path``; return it."""
    # A copy: setuptools leaves a folder beside what it builds.
    source = shutil.copytree(PACKAGES / name, folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-compile", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "installed", source]
    subprocess.run(command, check=True)
    return folder / "installed"
