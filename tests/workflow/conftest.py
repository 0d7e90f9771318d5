"""Workflows to run: one that has run, a copy of it, and one that has not."""

from __future__ import annotations

import os
import shutil

import pytest
from filelock import FileLock
from small_workflow import Run, Workflow, lay_out


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A workflow that has run once, and that run; nobody changes it. All workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made"
    output = folder.with_suffix(".txt")
    with FileLock(f"{folder}.lock"):
        if not output.exists():
            shutil.rmtree(folder, ignore_errors=True)
            run = lay_out(folder).make()
            output.write_text(f"{run.measured}\n{run.output}")
    measured, _, text = output.read_text().partition("\n")
    return Workflow(folder), Run(0, text, int(measured))


@pytest.fixture
def copy(made, tmp_path):
    """A copy of the workflow that has run once, to change and run again."""
    folder = tmp_path / "workflow"
    shutil.copytree(made[0].folder, folder)
    return Workflow(folder)


@pytest.fixture
def unmeasured(copy):
    """A workflow that has run as far as the support stage."""
    before = {"arch_specs", "problems", "configs", "headers", "build", "support"}
    for path in [*(copy.folder / "results").iterdir(), copy.folder / "logs"]:
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copy


@pytest.fixture
def fresh(tmp_path):
    """A workflow that has not run yet."""
    return lay_out(tmp_path / "fresh")
