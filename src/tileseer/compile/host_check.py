"""What the compiled library itself says of (kernel, problem) pairs, on a machine without a GPU.

The host pass alone is compiled: the argument checks, the grid and the workspace that the library would use for a
launch. The HIP runtime is a stand-in (workflow/native/hip_stand_in.cpp), so no device is asked.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tileseer.compile import compiler, machine_code, reading
from tileseer.compile.base import CompileUnit
from tileseer.compile.compiler import Builder
from tileseer.conv.problem import Problem
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.families.gemm_kernel import Kernel
from tileseer.families.registry import of_arch

HOST_PASS = (
    "-O0", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only",
    "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
_STAND_IN = ("-O1", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only")
_LIBRARY_FORMAT = "host-check-1"
_AXES = (
    "Z", "Y", "X", "Di", "Hi", "Wi", *(f"{what}_{axis}" for what in ("stride", "dilation", "pad") for axis in "dhw"),
)  # fmt: skip
_UNDECIDED = {
    "timeout": "needs more than compile.timeout_seconds; raise it",
    "memory": "needs more than compile.memory_mib; raise it",
    "crash": "makes {} crash; run again, or use another compiler",
    "broken": "makes {} write a library that cannot be loaded; run again, or use another compiler",
}
"""Outcomes of a compiler run that are no verdict on the kernel, and what to do."""


@dataclass(frozen=True)
class HostChecks:
    """The loaded host code of some kernels; it stays loaded for the life of the process."""

    library: ctypes.CDLL
    kernels: Sequence[Kernel]

    def verdicts(self, problems: Sequence[Problem], split_k: int = 1) -> np.ndarray:
        """Which of P problems each of Q kernels can run by its own checks, bool [P, Q]; data types are not asked."""
        answers = np.zeros((len(problems), len(self.kernels)), bool)
        rows = [numbers(problem) for problem in problems]
        with silence():
            for column, kernel in enumerate(self.kernels):
                ask = self.library[f"supports_{column}"]
                for row, (problem, sizes) in enumerate(zip(problems, rows, strict=True)):
                    answers[row, column] = problem.ndim == kernel.ndim and ask(sizes, split_k) == 1
        return answers


class HostPassError(UserError):
    """A run of the compiler that made no library."""

    def __init__(self, path: Path, run: compiler.Run) -> None:
        super().__init__(f"{path}: the host pass fails ({run.outcome}): {run.log[:500]}")
        self.outcome = run.outcome


class HostCompiler(Builder):
    """Compiles host code alone; ``native`` is the folder of hip_stand_in.cpp."""

    _stand_in: ctypes.CDLL | None = None

    def verdicts(self, units: Sequence[CompileUnit], problems: Sequence[Problem], splits: Sequence[int]) -> np.ndarray:
        """``HostChecks.verdicts`` for each of S split-K, bool [S, P, Q].

        A kernel whose host code does not compile can run nothing. One that takes too much time or memory for that is a
        ``UserError``: another run would perhaps say otherwise.
        """
        size = self.settings.batch
        batches = [units[start : start + size] for start in range(0, len(units), size)]
        none = np.zeros((len(splits), len(problems), 0), bool)
        return np.concatenate([none, *(self._verdicts(batch, problems, splits) for batch in batches)], axis=2)

    def _verdicts(self, units: Sequence[CompileUnit], problems: Sequence[Problem], splits: Sequence[int]) -> np.ndarray:
        try:
            checks = self.load(units)
        except HostPassError as failure:
            if len(units) > 1:
                half = len(units) // 2
                parts = [self._verdicts(part, problems, splits) for part in (units[:half], units[half:])]
                return np.concatenate(parts, axis=2)
            if failure.outcome != "error":
                what = _UNDECIDED[failure.outcome].format(self.compiler.path)
                raise UserError(f"{units[0].kernel.name}: its host code {what}") from None
            return np.zeros((len(splits), len(problems), 1), bool)
        return np.stack([checks.verdicts(problems, split_k) for split_k in splits])

    def load(self, units: Sequence[CompileUnit]) -> HostChecks:
        """Compile and load the checks of the units; ``HostPassError`` if they do not compile."""
        if self._stand_in is None:
            source = self.native / "hip_stand_in.cpp"
            with compiler.workspace({}) as folder:
                run = self.call([*_STAND_IN, source.resolve(), "-o", "stand_in.so"], folder, 2)
                if run.outcome != "ok":
                    raise UserError(f"{self.compiler.path}: {source} does not compile: {run.log[:500]}")
                self._stand_in = ctypes.CDLL(str(folder / "stand_in.so"), mode=ctypes.RTLD_GLOBAL)
        kernels = [unit.kernel for unit in units]
        text = of_arch(units[0].arch).part("build").host_source(kernels)
        arguments: list[str | Path] = [*HOST_PASS, "-I", self.tree.include]
        headers = [part for unit in units for part in (unit.header, reading.digest(self, unit.header, arguments))]
        key = caches.key(_LIBRARY_FORMAT, self.compiler.version, *HOST_PASS, text, *headers)
        files = {f"{unit.kernel.name}.hpp": unit.header for unit in units} | {"unit.cpp": text.encode()}
        content = self.cache.made_once(key, lambda: self._library(files))
        with compiler.workspace({"unit.so": content}) as folder:
            return HostChecks(ctypes.CDLL(str(folder / "unit.so"), mode=ctypes.RTLD_LOCAL), kernels)

    def _library(self, files: dict[str, bytes]) -> bytes:
        """Compile the checks of some units; ``HostPassError`` if that makes no whole library."""
        with compiler.workspace(files) as folder:
            arguments: list[str | Path] = [*HOST_PASS, "-I", self.tree.include, "-I", ".", "unit.cpp", "-o", "unit.so"]
            run, made = self.call(arguments, folder, 2), folder / "unit.so"
            content = made.read_bytes() if made.exists() else b""
        if run.outcome == "ok" and (fault := machine_code.fault(content)):
            run = replace(run, outcome="broken", log=f"unit.so cannot be used: {fault}")
        if run.outcome != "ok":
            raise HostPassError(self.compiler.path, run)
        return content


@contextmanager
def silence() -> Iterator[None]:
    """Discard what the library prints for every refusal: the verdict says it."""
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


def numbers(problem: Problem) -> ctypes.Array[ctypes.c_long]:
    """A problem as the compiled checks read it: G, N, K and C of a group, then the axes."""
    shape = [problem.G, problem.N, problem.K // problem.G, problem.C // problem.G]
    sizes = shape + [getattr(problem, name) for name in _AXES]
    return (ctypes.c_long * len(sizes))(*sizes)
