"""The file of choices: which plan each shape runs, for the next process."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import NamedTuple

from tileseer.core import atomic, locks
from tileseer.core.errors import UserError
from tileseer.problems.problem import DIMS, Problem

PYTORCH = ""
"""In the place of a plan: PyTorch's own choice."""
PLAN = re.compile(r"(eng\d+(_k\d+=-?\d+)*)?", re.ASCII)
"""An engine and its knobs by cuDNN's numbers, or ``PYTORCH``."""
BENCHMARK = {"default": False, "benchmark": True}
"""What PyTorch's own choice is: a word of the file to ``torch.backends.cudnn.benchmark``."""
HEADER = ("operation", "device", "pytorch", *DIMS, "plan")


class Key(NamedTuple):
    """What a plan is chosen for."""

    operation: str
    device: str
    """As PyTorch calls it."""
    benchmark: bool
    dims: tuple[int, ...]


class Choices:
    """The plans of a file and of this process; a plan is cuDNN's name of it, or ``PYTORCH``.

    ``identity`` is the first line of the file: what the choices depend on beside their keys.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """Read the file; where it is damaged or of another identity, ``damage`` says so, and it counts as empty."""
        self.path, self.identity, self.damage = path, identity, ""
        self._lock = threading.Lock()
        self._changed = False
        self.plans = self._read()

    def add(self, key: Key, plan: str) -> None:
        """Remember a choice until it is saved."""
        with self._lock:
            self.plans[key] = plan
            self._changed = True

    def save(self) -> None:
        """Write the choices, with those that other processes saved since; nothing where there is none to add."""
        with self._lock:
            if not self._changed:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locks.hold_folder(self.path.parent):
                self.plans = self._read() | self.plans
                words = {benchmark: word for word, benchmark in BENCHMARK.items()}
                rows = [
                    (key.operation, key.device, words[key.benchmark], *map(str, key.dims), plan)
                    for key, plan in sorted(self.plans.items())
                ]
                lines = [f"# {self.identity}", *("\t".join(row) for row in (HEADER, *rows))]
                atomic.write_text(self.path, "".join(f"{line}\n" for line in lines))
            self._changed = False

    def _read(self) -> dict[Key, str]:
        try:
            return self._parsed()
        except UserError as error:
            self.damage = str(error)
            return {}

    def _parsed(self) -> dict[Key, str]:
        try:
            first, header, *lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path}: {error}") from error
        if first != f"# {self.identity}":
            raise UserError(f"{self.path}: it has the choices of {first.removeprefix('# ')}, not of {self.identity}")
        if tuple(header.split("\t")) != HEADER:
            raise UserError(f"{self.path}, line 2: the columns are not {', '.join(HEADER)}")
        plans = {}
        for number, line in enumerate(lines, 3):
            try:
                operation, device, word, *dims, plan = line.split("\t")
                variant, _, dtype = operation.rpartition("_")
                problem = Problem.from_dims(variant, dtype, **dict(zip(DIMS, map(int, dims), strict=True)))
                if not PLAN.fullmatch(plan):
                    raise ValueError(f"{plan!r} is no plan")
                plans[Key(operation, device, BENCHMARK[word], problem.dims)] = plan
            except (KeyError, ValueError, UserError) as error:
                raise UserError(f"{self.path}, line {number}: {error}") from error
        return plans
