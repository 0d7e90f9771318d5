"""What the compiled library itself says of (kernel, problem) pairs, on a machine without a GPU.

The host pass alone is compiled: the argument checks, the grid and the workspace that the library would use for a
launch. The HIP runtime is a stand-in (workflow/native/hip_stand_in.cpp), so no device is asked.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tileseer.compile import ck_tree, compiler, machine_code
from tileseer.compile.base import CompileUnit
from tileseer.compile.header_tree import HeaderTree
from tileseer.conv.problem import Problem
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.families.registry import of_arch
from tileseer.settings.compile import CacheSettings, CkSettings, CompileSettings

HOST_PASS = (
    "-O0", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only",
    "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
_STAND_IN = ("-O1", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only")
_LIBRARY_FORMAT = "host-check-1"
NUMBERS = 19
"""Numbers that describe a problem to the compiled check."""


@dataclass(frozen=True)
class Launches:
    """How the library would launch Q kernels for P problems, int64 [P, Q] each; -1 where it refuses the pair."""

    blocks: np.ndarray
    threads: np.ndarray
    workspace_bytes: np.ndarray


class HostChecks:
    """The loaded host code of some kernels; it stays loaded for the life of the process."""

    def __init__(self, library: ctypes.CDLL, kernels: Sequence[GemmKernel]) -> None:
        self._library, self._kernels = library, kernels

    def verdicts(self, problems: Sequence[Problem], split_k: int = 1) -> np.ndarray:
        """Return which of P problems each of Q kernels says that it can run, bool [P, Q]; data types are not asked."""
        answers = np.zeros((len(problems), len(self._kernels)), bool)
        rows = [_described(problem) for problem in problems]
        with _silence():
            for column, kernel in enumerate(self._kernels):
                ask = self._library[f"supports_{column}"]
                for row, (problem, numbers) in enumerate(zip(problems, rows, strict=True)):
                    answers[row, column] = problem.ndim == kernel.ndim and ask(numbers, split_k) == 1
        return answers

    def launches(self, problems: Sequence[Problem], supported: np.ndarray, split_k: int = 1) -> Launches:
        """Return grid and workspace of the ``supported`` pairs, bool [P, Q] as ``verdicts`` returns them."""
        found = np.full((3, *supported.shape), -1, np.int64)
        three = (ctypes.c_long * 3)()
        with _silence():
            for row, column in zip(*np.nonzero(supported), strict=True):
                self._library[f"launch_{column}"](_described(problems[row]), split_k, three)
                found[:, row, column] = three
        return Launches(*found)


_UNDECIDED = {
    "timeout": "needs more than compile.timeout_seconds; raise it",
    "memory": "needs more than compile.memory_mib; raise it",
    "crash": "makes {} crash; run again, or use another compiler",
    "broken": "makes {} write a library that cannot be loaded; run again, or use another compiler",
}
"""What became of a run of the compiler that says nothing of the kernel, and what to do."""


class _NothingMadeError(Exception):
    """A run of the compiler that gave nothing to keep."""

    def __init__(self, run: compiler.Run) -> None:
        super().__init__(run.outcome)
        self.run = run


class HostCompiler:
    """Compiles host code alone; ``native`` is the folder of hip_stand_in.cpp."""

    def __init__(
        self,
        found: compiler.Compiler,
        tree: HeaderTree,
        settings: CompileSettings,
        native: Path,
        cache: caches.Cache | None = None,
    ) -> None:
        self._compiler, self._tree, self._settings, self._native = found, tree, settings, native
        self._cache = cache
        self._stand_in: ctypes.CDLL | None = None

    def load(self, units: Sequence[CompileUnit]) -> HostChecks:
        """Compile and load the checks of the units; ``UserError`` if they do not compile."""
        run, checks = self._load(units)
        if checks is None:
            raise UserError(f"{self._compiler.path}: the host pass fails ({run.outcome}): {run.log[:500]}")
        return checks

    def verdicts(self, units: Sequence[CompileUnit], problems: Sequence[Problem], splits: Sequence[int]) -> np.ndarray:
        """Return what ``HostChecks.verdicts`` says for each of S split-K, bool [S, P, Q].

        A kernel whose host code does not compile can run nothing. One that takes too much time or memory for that is a
        ``UserError``: another run would perhaps say otherwise.
        """
        size = self._settings.batch
        batches = [units[start : start + size] for start in range(0, len(units), size)]
        none = np.zeros((len(splits), len(problems), 0), bool)
        return np.concatenate([none, *(self._verdicts(batch, problems, splits) for batch in batches)], axis=2)

    def _verdicts(self, units: Sequence[CompileUnit], problems: Sequence[Problem], splits: Sequence[int]) -> np.ndarray:
        run, checks = self._load(units)
        if checks is not None:
            return np.stack([checks.verdicts(problems, split_k) for split_k in splits])
        if len(units) == 1:
            if run.outcome != "error":
                what = _UNDECIDED[run.outcome].format(self._compiler.path)
                raise UserError(f"{units[0].kernel.name}: its host code {what}")
            return np.zeros((len(splits), len(problems), 1), bool)
        half = len(units) // 2
        return np.concatenate([self._verdicts(part, problems, splits) for part in (units[:half], units[half:])], axis=2)

    def _load(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, HostChecks | None]:
        with tempfile.TemporaryDirectory(prefix="tileseer-") as temporary:
            folder = Path(temporary)
            if self._stand_in is None:
                source = self._native / "hip_stand_in.cpp"
                run = self._run([*_STAND_IN, str(source.resolve()), "-o", "stand_in.so"], folder)
                if run.outcome != "ok":
                    raise UserError(f"{self._compiler.path}: {source} does not compile: {run.log[:500]}")
                self._stand_in = ctypes.CDLL(str(folder / "stand_in.so"), mode=ctypes.RTLD_GLOBAL)
            run = self._library(units, folder)
            if run.outcome != "ok":
                return run, None
            library = ctypes.CDLL(str(folder / "unit.so"), mode=ctypes.RTLD_LOCAL)
        return run, HostChecks(library, [unit.kernel for unit in units])

    def _library(self, units: Sequence[CompileUnit], folder: Path) -> compiler.Run:
        """Put the checks of the units into ``folder``/unit.so: out of the cache, or compiled."""
        text = of_arch(units[0].arch).part("build").host_source([unit.kernel for unit in units])
        headers = [part for unit in units for part in (unit.header, self._tree.digest(unit.header))]
        key = caches.key(_LIBRARY_FORMAT, self._compiler.version, *HOST_PASS, text, *headers)

        def make() -> bytes:
            run = self._made(units, text, folder)
            if run.outcome != "ok":
                raise _NothingMadeError(run)
            return (folder / "unit.so").read_bytes()

        try:
            content = self._cache.made_once(key, make) if self._cache else make()
        except _NothingMadeError as failure:
            return failure.run
        (folder / "unit.so").write_bytes(content)
        return compiler.Run("ok", "", 0.0, 0.0)

    def _made(self, units: Sequence[CompileUnit], text: str, folder: Path) -> compiler.Run:
        """Compile the checks of the units to ``folder``/unit.so."""
        for unit in units:
            (folder / f"{unit.kernel.name}.hpp").write_bytes(unit.header)
        (folder / "unit.cpp").write_text(text)
        run = self._run([*HOST_PASS, "-I", str(self._tree.include), "-I", ".", "unit.cpp", "-o", "unit.so"], folder)
        if run.outcome == "ok":
            made = folder / "unit.so"
            if fault := machine_code.fault(made.read_bytes() if made.exists() else b""):
                return replace(run, outcome="broken", log=f"unit.so cannot be used: {fault}")
        return run

    def _run(self, arguments: Sequence[str], folder: Path) -> compiler.Run:
        timeout = 2.0 * self._settings.timeout_seconds
        return self._compiler.run(arguments, folder, timeout, self._settings.memory_mib)


def host_compiler(settings: CompileSettings, ck: CkSettings, cache: CacheSettings, native: Path) -> HostCompiler:
    """Return the one of the settings; ``native`` is the folder of hip_stand_in.cpp."""
    store = caches.open_cache(cache.folder, cache.max_gib)
    return HostCompiler(compiler.find(settings), ck_tree.tree(ck), settings, native, store)


@contextmanager
def _silence() -> Iterator[None]:
    """Send what the library prints for every refusal nowhere: the verdict says it."""
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        yield
    finally:
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


def _described(problem: Problem) -> ctypes.Array[ctypes.c_long]:
    return (ctypes.c_long * NUMBERS)(*_numbers(problem))


def _numbers(problem: Problem) -> list[int]:
    shape = [problem.G, problem.N, problem.K // problem.G, problem.C // problem.G]
    return shape + [getattr(problem, field) for fields in _axes() for field in fields]


def _axes() -> list[tuple[str, ...]]:
    lists = [("Z", "Y", "X"), ("Di", "Hi", "Wi")]
    return lists + [tuple(f"{what}_{axis}" for axis in "dhw") for what in ("stride", "dilation", "pad")]
