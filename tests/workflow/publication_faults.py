"""Kills of the publish stage while others read what is published, for the fault suite.

Two versions are published in turn and each publication is killed at a drawn moment or ends, while one process reads
the models again and again and another one looks whether they are there. All of them have to see one whole version at
every moment, and the next publication has to leave nothing but its own.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkProcess
from pathlib import Path

from fault_injection import ROOT, Suite, run_stage

sys.path.append(str(ROOT / "tests/builders"))
from publications import other_version, read_once

FAULT = "kill -9 of publish beside readers"
LOOK_S = 5e-5


class Readers:
    """Counts of two processes that look at published models."""

    def __init__(self, models: Path, operation: str) -> None:
        context = multiprocessing.get_context("fork")
        self._end = context.Event()
        self.reads, self.refused, self.looks, self.absent = (context.Value("l", 0) for _ in range(4))
        works: tuple[Callable[[], None], ...] = (lambda: self._read(models, operation), lambda: self._look(models))
        self._processes: list[ForkProcess] = [context.Process(target=work) for work in works]

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Read until the end of the block."""
        for process in self._processes:
            process.start()
        try:
            yield
        finally:
            self._end.set()
            for process in self._processes:
                process.join()

    def _read(self, models: Path, operation: str) -> None:
        while not self._end.is_set():
            try:
                read_once(models, operation)
            except Exception as error:
                print(f"refused: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                self.refused.value += 1
            self.reads.value += 1

    def _look(self, models: Path) -> None:
        while not self._end.is_set():
            self.absent.value += not models.is_dir()
            self.looks.value += 1
            time.sleep(LOOK_S)


def kill_publications(suite: Suite, number: int, reads: int) -> None:
    """Kill publications until one was hit and so many reads are done, then let one end and compare."""
    (stage,) = (stage for stage in suite.stages if stage.name == "publish")
    (served,) = (suite.made.folder / "results/serving/gfx950").iterdir()
    other = suite.made.folder.parent / "other" / served.name
    if not other.exists():
        other_version(served, other)
    models = suite.scratch.folder / "results/models/gfx950"
    serving = suite.scratch.folder / served.relative_to(suite.made.folder)
    for draw in suite.cases("kill of a publication", number):
        suite.reset()
        readers, kills = Readers(models, served.name), 0
        with readers.beside():
            while not kills or readers.reads.value < reads:
                shutil.rmtree(serving)
                shutil.copytree(draw.choice((served, other)), serving)
                status, _ = run_stage(stage, suite.scratch.folder, draw.uniform(0, 1.2 * suite.seconds[stage]))
                kills += status == -signal.SIGKILL
        clear_but_models(suite, stage, models.parent)
        status, said = run_stage(stage, suite.scratch.folder)
        left = sorted(path.name for path in models.parent.iterdir())
        counts = {name: getattr(readers, name).value for name in ("reads", "refused", "looks", "absent")}
        sound = status == 0 and suite.same(stage) and left == [models.name] and not counts["refused"] + counts["absent"]
        detail = f"{kills} kills, {counts}, {left}"
        print(f"{FAULT}: {detail}", flush=True)
        suite.count(FAULT, "recovered" if sound else "lost", f"{detail}: {said[-1500:]}")


def clear_but_models(suite: Suite, stage, models: Path) -> None:
    """Bring all results but the folder of the models to their undisturbed state; without the history."""
    aside = suite.scratch.folder / "aside"
    os.rename(models, aside)
    suite.clear(stage)
    shutil.rmtree(models)
    os.rename(aside, models)
