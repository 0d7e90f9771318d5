"""Puts the workflow into the wheel: what stands beside ``src`` in a checkout is ``tileseer/shipped`` when installed."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Recordings are 16 MB; the repository has them.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "recorded")
SHIPPED = ("Snakefile", "config", "envs/tileseer.yaml", "profiles", "workflow")


class BuildWithWorkflow(build_py):
    """Copies the package and then the workflow; an editable installation finds the latter in the checkout."""

    def run(self) -> None:
        """Fill the folder that becomes the wheel."""
        super().run()
        for part in () if self.editable_mode else SHIPPED:
            target = Path(self.build_lib, "tileseer/shipped", part)
            target.parent.mkdir(parents=True, exist_ok=True)
            if Path(part).is_dir():
                shutil.copytree(part, target, dirs_exist_ok=True, ignore=LEFT_OUT)
            else:
                shutil.copy2(part, target)


setup(cmdclass={"build_py": BuildWithWorkflow})
