"""The plans of a program by shape: those of the store of tuned choices, and those that were chosen since."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tileseer.core import cache
from tileseer.core.errors import UserError
from tileseer.serve.tuned import Choice, remember, tuned_path, usable_choices

PYTORCH = ""
"""In the place of a plan: PyTorch's own choice."""
OWN = "pytorch"
"""The same in the store."""
WRITTEN_EVERY_SECONDS = 10.0
PLAN = re.compile(rf"eng\d+(_k\d+=-?\d+)*|{OWN}", re.ASCII)
"""An engine and its knobs by cuDNN's numbers, or ``OWN``."""


class Key(NamedTuple):
    """What a plan is chosen for."""

    operation: str
    device: str
    """As PyTorch calls it."""
    benchmark: bool
    """Whether PyTorch's own choice is that of its benchmark mode."""
    dims: tuple[int, ...]


def folder(path: Path | None) -> Path:
    """Return the folder of the choices of ``path``; None: of the user's cache."""
    return tuned_path(path or cache.default_folder() / "torch" / "choices", "").parent


class Choices:
    """The plans of a store and of this process; a plan is cuDNN's name of it, or ``PYTORCH``.

    ``PATH.tuned`` (None: in the user's cache) has files for each ``identity``: what the choices depend on beside their
    keys. A plan that was timed is followed by PyTorch's own choice and its time. Choices are written when they are
    made, but at most once in ``WRITTEN_EVERY_SECONDS``: a program that is killed loses no more.
    """

    def __init__(self, path: Path | None, identity: str, operations: Iterable[str]) -> None:
        """Read the store."""
        self._digest = cache.key(identity)[:16]
        self.path = path or cache.default_folder() / "torch" / "choices"
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._new: list[tuple[Key, Choice]] = []
        self._writer: threading.Timer | None = None
        self._written = -math.inf
        self.plans: dict[Key, str] = {}
        self.times: dict[Key, dict[str, float]] = {}
        """Milliseconds of the chosen plan and of PyTorch's own choice, as far as they were timed."""
        for operation in operations:
            for benchmark in (False, True):
                for choice in usable_choices(self.file(operation, benchmark)):
                    if PLAN.fullmatch(choice.candidate):
                        key = Key(operation, choice.device, benchmark, choice.dims)
                        way = PYTORCH if choice.candidate == OWN else choice.candidate
                        self.plans.setdefault(key, way)
                        if choice.timed:
                            self.times.setdefault(key, {}).setdefault(way, choice.time_ms)

    def file(self, operation: str, benchmark: bool = False) -> Path:
        """Return the file of an operation."""
        return tuned_path(self.path, operation, self._digest + ("_benchmark" if benchmark else ""))

    def add(self, key: Key, plan: str, time_ms: float, timed: int, own_ms: float = 0.0) -> None:
        """Remember a choice, with its time and that of PyTorch's own, and write it soon; 0s where nothing was timed."""
        with self._lock:
            self.plans[key] = plan
            times = {plan: time_ms, PYTORCH: own_ms} if own_ms else {plan: time_ms}
            if timed:
                self.times[key] = times
            for way, way_ms in times.items():
                self._new.append((key, Choice(key.dims, way or OWN, way_ms, timed, key.device, "measured")))
            if not (self._writer and self._writer.is_alive()):  # none is after a fork
                wait = max(0.0, self._written + WRITTEN_EVERY_SECONDS - time.monotonic())
                self._writer = threading.Timer(wait, self._write)
                self._writer.daemon = True
                self._writer.start()

    def save(self) -> None:
        """Write the choices behind those that other processes saved since; nothing where there is none to add."""
        with self._saving:
            with self._lock:
                new, self._new = self._new, []
            files = defaultdict[Path, list[Choice]](list)
            for key, choice in new:
                files[self.file(key.operation, key.benchmark)].append(choice)
            try:
                for path, choices in files.items():
                    remember(path, choices)
            except BaseException:
                with self._lock:
                    self._new = new + self._new
                raise

    def _write(self) -> None:
        self._written = time.monotonic()
        with contextlib.suppress(OSError, UserError):  # said at the end of the program, when it fails again
            self.save()
