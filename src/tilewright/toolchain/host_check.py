"""The compiled library's own verdict on (kernel, problem) pairs, on a machine without a GPU.

The host pass alone is compiled: the argument checks that the library itself would ask before a launch. The HIP runtime
is a stand-in (workflow/native/hip_stand_in.cpp), so no device is asked.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tilewright.errors import UserError
from tilewright.kernel import KernelConfig, name
from tilewright.problem import Problem
from tilewright.settings.compile import CompileSettings
from tilewright.toolchain import compiler
from tilewright.toolchain.base import CompileUnit
from tilewright.toolchain.ck_tree import CkTree

HOST_PASS = (
    "-O0", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only",
    "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
_STAND_IN = ("-O1", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only")
NUMBERS = 19
"""Numbers that describe a problem to the compiled check."""
_PER_KERNEL = """
extern "C" int supports_{index}(const long* problem, int split_k)
{{
    return ns_{name}::{name}_Launcher::is_supported(param(problem, {ndim}), split_k);
}}
"""
_COMMON = """
namespace {

// problem: G, N, K and C of a group, then three axes each of filter, input, strides, dilations, pads.
ck_tile::conv::ConvParam param(const long* problem, int ndim)
{
    const auto axes = [&](int list) {
        const long* first = problem + 4 + 3 * list + (3 - ndim);
        return std::vector<ck_tile::long_index_t>(first, first + ndim);
    };
    return {ck_tile::long_index_t{ndim}, problem[0], problem[1], problem[2], problem[3],
            axes(0), axes(1), axes(2), axes(3), axes(4), axes(4)};
}

} // namespace
"""


class HostChecks:
    """The loaded host code of some kernels; it stays loaded for the life of the process."""

    def __init__(self, library: ctypes.CDLL, kernels: Sequence[KernelConfig]) -> None:
        self._library, self._kernels = library, kernels

    def verdicts(self, problems: Sequence[Problem], split_k: int = 1) -> np.ndarray:
        """Return which of P problems each of Q kernels says that it can run, bool [P, Q]; data types are not asked."""
        answers = np.zeros((len(problems), len(self._kernels)), bool)
        rows = [(ctypes.c_long * NUMBERS)(*_numbers(problem)) for problem in problems]
        with _silence():
            for column, kernel in enumerate(self._kernels):
                ask = self._library[f"supports_{column}"]
                for row, (problem, numbers) in enumerate(zip(problems, rows, strict=True)):
                    answers[row, column] = problem.ndim == kernel.ndim and ask(numbers, split_k) == 1
        return answers


class HostCompiler:
    """Compiles host code alone; ``native`` is the folder of hip_stand_in.cpp."""

    def __init__(self, found: compiler.Compiler, tree: CkTree, settings: CompileSettings, native: Path) -> None:
        self._compiler, self._tree, self._settings, self._native = found, tree, settings, native
        self._stand_in: ctypes.CDLL | None = None

    def load(self, units: Sequence[CompileUnit]) -> HostChecks:
        """Compile and load the checks of the units; ``UserError`` if they do not compile."""
        with tempfile.TemporaryDirectory(prefix="tilewright-") as temporary:
            folder = Path(temporary)
            if self._stand_in is None:
                source = self._native / "hip_stand_in.cpp"
                self._run([*_STAND_IN, str(source.resolve()), "-o", "stand_in.so"], folder)
                self._stand_in = ctypes.CDLL(str(folder / "stand_in.so"), mode=ctypes.RTLD_GLOBAL)
            for unit in units:
                (folder / f"{name(unit.kernel)}.hpp").write_bytes(unit.header)
            (folder / "unit.cpp").write_text(_text([unit.kernel for unit in units]))
            self._run([*HOST_PASS, "-I", str(self._tree.include), "-I", ".", "unit.cpp", "-o", "unit.so"], folder)
            library = ctypes.CDLL(str(folder / "unit.so"), mode=ctypes.RTLD_LOCAL)
        return HostChecks(library, [unit.kernel for unit in units])

    def _run(self, arguments: Sequence[str], folder: Path) -> None:
        timeout = 2.0 * self._settings.timeout_seconds
        run = compiler.run([self._compiler.path, *arguments], folder, timeout, self._settings.memory_mib)
        if run.outcome != "ok":
            raise UserError(f"{self._compiler.path}: the host pass fails ({run.outcome}): {run.log[:500]}")


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


def _numbers(problem: Problem) -> list[int]:
    shape = [problem.G, problem.N, problem.K // problem.G, problem.C // problem.G]
    return shape + [getattr(problem, field) for fields in _axes() for field in fields]


def _axes() -> list[tuple[str, ...]]:
    lists = [("Z", "Y", "X"), ("Di", "Hi", "Wi")]
    return lists + [tuple(f"{what}_{axis}" for axis in "dhw") for what in ("stride", "dilation", "pad")]


def _text(kernels: Sequence[KernelConfig]) -> str:
    includes = "".join(f'#include "{name(kernel)}.hpp"\n' for kernel in kernels)
    checks = (_PER_KERNEL.format(index=i, name=name(kernel), ndim=kernel.ndim) for i, kernel in enumerate(kernels))
    return includes + _COMMON + "".join(checks)
