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

from tileseer.build import compiler, machine_code, reading
from tileseer.build.base import CompileUnit
from tileseer.build.compiler import Builder
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.problems.problem import Problem

HOST_PASS = (
    "-O0", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only",
    "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
_STAND_IN = ("-O1", "-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only")
_LIBRARY_FORMAT = "host-check-1"
_AXES = (
    "Z", "Y", "X", "Di", "Hi", "Wi", *(f"{what}_{axis}" for what in ("stride", "dilation", "pad") for axis in "dhw"),
)  # fmt: skip
_PER_KERNEL = """
extern "C" int supports_{index}(const long* problem, int split_k)
{{
    return ns_{name}::{name}_Launcher::is_supported(param(problem, {ndim}), split_k);
}}

// three: blocks of the grid, threads of a block, bytes of the workspace.
extern "C" void launch_{index}(const long* problem, int split_k, long* three)
{{
    using Launcher = ns_{name}::{name}_Launcher;
    const auto shape = param(problem, {ndim});
    const typename Launcher::HostArgs args(shape, nullptr, nullptr, {{}}, nullptr, split_k);
    const dim3 grid  = Launcher::Kernel::GridSize(Launcher::Kernel::MakeKernelArgs(args));
    const dim3 block = Launcher::Kernel::BlockSize();
    three[0]         = long{{1}} * grid.x * grid.y * grid.z;
    three[1]         = long{{1}} * block.x * block.y * block.z;
    three[2]         = static_cast<long>({workspace});
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


@dataclass(frozen=True)
class HostChecks:
    """The loaded host code of some kernels; it stays loaded for the life of the process."""

    library: ctypes.CDLL
    kernels: Sequence[KernelConfig]

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


class HostCompiler(Builder):
    """Compiles host code alone; ``native`` is the folder of hip_stand_in.cpp."""

    _stand_in: ctypes.CDLL | None = None

    def load(self, units: Sequence[CompileUnit]) -> HostChecks:
        """Compile and load the checks of the units; ``UserError`` if they do not compile."""
        if self._stand_in is None:
            source = self.native / "hip_stand_in.cpp"
            with compiler.workspace({}) as folder:
                run = self.call([*_STAND_IN, source.resolve(), "-o", "stand_in.so"], folder, 2)
                if run.outcome != "ok":
                    raise UserError(f"{self.compiler.path}: {source} does not compile: {run.log[:500]}")
                self._stand_in = ctypes.CDLL(str(folder / "stand_in.so"), mode=ctypes.RTLD_GLOBAL)
        kernels = [unit.kernel for unit in units if isinstance(unit.kernel, KernelConfig)]
        text = host_source(kernels)
        arguments: list[str | Path] = [*HOST_PASS, "-I", self.tree.include]
        headers = [part for unit in units for part in (unit.header, reading.digest(self, unit.header, arguments))]
        key = caches.key(_LIBRARY_FORMAT, self.compiler.version, *HOST_PASS, text, *headers)
        files = {f"{unit.kernel.name}.hpp": unit.header for unit in units} | {"unit.cpp": text.encode()}
        content = self.cache.made_once(key, lambda: self._library(files))
        with compiler.workspace({"unit.so": content}) as folder:
            return HostChecks(ctypes.CDLL(str(folder / "unit.so"), mode=ctypes.RTLD_LOCAL), kernels)

    def _library(self, files: dict[str, bytes]) -> bytes:
        """Compile the checks of some units; ``UserError`` if that makes no whole library."""
        with compiler.workspace(files) as folder:
            arguments: list[str | Path] = [*HOST_PASS, "-I", self.tree.include, "-I", ".", "unit.cpp", "-o", "unit.so"]
            run, made = self.call(arguments, folder, 2), folder / "unit.so"
            content = made.read_bytes() if made.exists() else b""
        if run.outcome == "ok" and (fault := machine_code.fault(content)):
            run = replace(run, outcome="broken", log=f"unit.so cannot be used: {fault}")
        if run.outcome != "ok":
            raise UserError(f"{self.compiler.path}: the host pass fails ({run.outcome}): {run.log[:500]}")
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


def host_source(kernels: Sequence[KernelConfig]) -> str:
    """C++ with ``supports_I`` and ``launch_I`` for kernel I."""
    checks = (
        _PER_KERNEL.format(index=i, name=kernel.name, ndim=kernel.ndim, workspace=_workspace(kernel))
        for i, kernel in enumerate(kernels)
    )
    includes = "".join(f'#include "{kernel.name}.hpp"\n' for kernel in kernels)
    return includes + _COMMON + "".join(checks)


def _workspace(kernel: KernelConfig) -> str:
    """C++ expression of the workspace that a launch wants from its caller, bytes."""
    if kernel.streamk != "none":
        return "Launcher::workspace_bytes(args)"
    return "Launcher::workspace_bytes(shape)" if kernel.two_stage else "0"
