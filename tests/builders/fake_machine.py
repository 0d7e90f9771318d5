"""A machine with a compiler that does not compile, a tree of a kernel library, the sources of launchers and a cache."""

import sys
from dataclasses import replace
from pathlib import Path

import fake_hipcc
import fake_nvcc
from kernel_samples import a_kernel
from repository import H200, MI355X

from tileseer.build import compiler, reading
from tileseer.build import source_trees as trees
from tileseer.build.base import CompileUnit
from tileseer.build.hipcc import HipccToolchain
from tileseer.build.modules import Libraries
from tileseer.build.nvcc import NvccToolchain
from tileseer.core.cache import Cache
from tileseer.facts.compile import CompileSettings
from tileseer.libraries.cutlass.kernel import CutlassKernel


def install_compiler(path: Path, module: str) -> None:
    """Write a program that runs ``main`` of a module of this folder."""
    folder = str(Path(__file__).parent)
    lines = ["import sys", f"sys.path.insert(0, {folder!r})", f"import {module}"]
    path.write_text("\n".join([f"#!{sys.executable}", *lines, f"raise SystemExit({module}.main(sys.argv[1:]))"]))
    path.chmod(0o755)


class HipMachine:
    """hipcc, and CK Tile as three headers."""

    program, module, version, section = "hipcc", "fake_hipcc", fake_hipcc.VERSION, "ck"
    kernels = tuple(replace(a_kernel(), tile_m=16 * (index + 1)) for index in range(13))
    toolchain_class, gpu = HipccToolchain, MI355X
    text = '#include "ck_tile/a.hpp"\n'
    included, launcher, other = "ck/include/ck_tile/b.hpp", "native/launcher.hpp", "ck/include/ck_tile/other.hpp"
    contents = (("ck/include/ck_tile/a.hpp", '#include "ck_tile/b.hpp"'), ("ocml.bc", "sin 1"), (other, ""))

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compiler = folder / self.program
        install_compiler(self.compiler, self.module)
        for name, text in (("version", self.version), (self.included, ""), (self.launcher, ""), *self.contents):
            self.write(name, text)

    def write(self, name: str, text: str) -> Path:
        """Write a file of this machine, and end what is remembered of files for the time of a process."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.forget()
        return path

    def forget(self) -> None:
        for known in (trees.content_digest, reading._content, reading._digest):
            known.cache_clear()

    def units(self, *texts: str) -> list[CompileUnit]:
        """A kernel for each text, which is in its header."""
        return [
            CompileUnit(kernel, self.gpu.arch, f"{self.text}// {kernel.name}\n{text}".encode())
            for kernel, text in zip(self.kernels, texts, strict=False)
        ]

    def parts(self, settings):
        settings = CompileSettings(toolchain=self.program, compiler=str(self.compiler), memory_mib=2048, **settings)
        tree = trees.tree_of(self.program, {self.section: str(self.folder / self.section)})
        cache = Cache(self.folder / "cache", 2**30)
        return compiler.find_compiler(settings), tree, settings, cache, self.folder / "native"

    def toolchain(self, **settings):
        return self.toolchain_class(*self.parts(settings), self.gpu)

    def compile(self, *texts: str, **settings):
        return self.toolchain(**settings).compile(self.units(*texts))

    def statuses(self, *texts: str, **settings) -> list[str]:
        return [result.status for result in self.compile(*texts, **settings)]

    def link(self, *texts: str) -> bytes:
        """A module of kernels that are known to compile."""
        return Libraries(*self.parts({})).module(self.units(*texts))

    @property
    def runs(self) -> list[list[str]]:
        """Names of the kernels of each run of the compiler."""
        path = self.folder / "runs"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


class CudaMachine(HipMachine):
    """nvcc, and CUTLASS as one header."""

    program, module, version, section = "nvcc", "fake_nvcc", fake_nvcc.VERSION, "cutlass"
    kernels = tuple(
        CutlassKernel.parse(f"cutlass_conv_fwd_bf16_nhwc_2d_optimized_128x128x32_2x2x1_16x8x16_s{n}_swz1_vec8_8_8")
        for n in range(3, 16)
    )
    toolchain_class, gpu = NvccToolchain, H200
    text = "#include <cutlass/cutlass.h>\n"
    included, launcher = "cutlass/include/cutlass/cutlass.h", "native/cutlass_kernel.hpp"
    contents = ()
