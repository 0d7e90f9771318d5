"""A stage that is killed at any moment, or whose disk is full, loses nothing: a plain rerun makes the same bytes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import warm_python
from small_workflow import Workflow
from stages_by_hand import Stage, stages_of

from tileseer.measure.journal import journal_files, read_journal

PAGE = 4096


class World:
    """A workflow that has run undisturbed, and a copy of it to disturb."""

    def __init__(self, made: Workflow, folder: Path) -> None:
        self.made, self.folder = made.folder, folder
        shutil.copytree(made.folder, folder)
        # Many small writes of the benchmark, so that a kill can come between two.
        shutil.copytree(folder / "src", folder / "slow")
        Workflow(folder).edit("slow/tileseer/measure/benchmark.py", "_BETWEEN_WRITES = 65536", "_BETWEEN_WRITES = 8")
        self.environment = made.environment()
        self.stages = stages_of(made.folder)

    def clear(self, stage: Stage) -> None:
        """Bring all results to their undisturbed state, but without the outputs of a stage."""
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        shutil.copytree(self.made / "results", self.folder / "results")
        for path in [file for name in stage.outputs for file in files_of(self.folder / name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run(self, stage: Stage, kill_after: float | None = None) -> tuple[int, str]:
        """Run a stage; return its status, negative if it was killed, and what it printed."""
        slow, words = stage.name == "benchmark", list(stage.words)
        if slow:
            # Other code than that of the run, which no job compares without a digest.
            words[words.index("--code") + 1] = ""
        sources = self.folder / ("slow" if slow else "src")
        process = warm_python.start(words, self.folder, self.environment | {"PYTHONPATH": str(sources)})
        if kill_after is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(kill_after)
            process.kill()
        # Ends with the last process that could still write.
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def is_remade(self, stage: Stage) -> None:
        """Run a stage and insist on what it makes undisturbed."""
        status, said = self.run(stage)
        ours, theirs = ([contents(folder / name) for name in stage.outputs] for folder in (self.folder, self.made))
        assert status == 0 and ours == theirs, f"{stage.name}: {said}"


def files_of(path: Path) -> list[Path]:
    """Return an output as a list, if it is there; of a journal all its files."""
    return journal_files(path) if "journals" in path.parts else [path] if path.exists() else []


def contents(path: Path) -> object:
    """Return what has to be equal: bytes; of a receipt not the torn lines, of a journal its rows, no times."""
    if "journals" in path.parts:
        return sorted(map(str, read_journal(path)[0].to_pylist()))
    if path.is_dir():
        return {
            str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("[!.]*")) if file.is_file()
        }
    if "benchmark" in path.parts and path.suffix == ".json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "malformed_lines"}
    # Lines that do not count: read by no later stage.
    return path.name.endswith(".quarantine.tsv") or path.read_bytes()


@contextmanager
def full_disk(folder: Path):
    """Mount a file system without room at ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={PAGE}", "none", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        (folder / "filler").write_bytes(b"x" * PAGE)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def world(made, tmp_path_factory):
    return World(made[0], tmp_path_factory.mktemp("kills") / "scratch")


def test_a_stage_that_is_killed_is_made_again(world):
    assert len(world.stages) > 10
    for stage in world.stages:
        world.clear(stage)
        begun = time.monotonic()
        world.is_remade(stage)
        seconds, draw, status = time.monotonic() - begun, random.Random(f"kill of {stage.name}"), 0
        # One that was done before its moment was not hit.
        while status != -signal.SIGKILL:
            world.clear(stage)
            status, _ = world.run(stage, draw.uniform(0, seconds))
        world.is_remade(stage)


def test_a_stage_whose_disk_is_full_says_so_and_is_made_again(world):
    for stage in world.stages:
        written = [path for path in stage.outputs if files_of(world.made / path)]
        for folder in sorted({os.path.dirname(path) for path in written}):
            world.clear(stage)
            with full_disk(world.folder / folder):
                status, said = world.run(stage)
            assert status and "Traceback" not in said and re.search(rf"error: .*{re.escape(folder)}", said), said
            world.is_remade(stage)
