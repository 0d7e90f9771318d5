"""Workflows to run: one that has run, a copy of it, and one that has not."""

from __future__ import annotations

import shutil

import pytest
from small_workflow import Workflow, lay_out


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A workflow that has run once, and that run; nobody changes it."""
    workflow = lay_out(tmp_path_factory.mktemp("made"))
    return workflow, workflow.make()


@pytest.fixture
def copy(made, tmp_path):
    """A copy of the workflow that has run once, to change and run again."""
    folder = tmp_path / "workflow"
    shutil.copytree(made[0].folder, folder)
    return Workflow(folder)


@pytest.fixture
def fresh(tmp_path):
    """A workflow that has not run yet."""
    return lay_out(tmp_path / "fresh")
