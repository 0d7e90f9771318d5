"""The shared libraries that a GPU is measured with: the measuring driver, and modules of kernels for it.

A module is linked from objects of a few kernels each, host and device code, which register with the driver.
"""

import hashlib
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tileseer.build import compiler, machine_code, reading
from tileseer.build.base import CompileUnit
from tileseer.build.compiler import NATIVE_SOURCES, Builder, arch_options, flags_of
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.core.reading import LARGEST_OBJECT, read_bytes
from tileseer.facts.hardware import target as gpu_target
from tileseer.libraries.registry import emitter_of

DRIVER_SOURCE = "conv_library.cpp"
STAND_IN_SOURCE = "hip_stand_in.cpp"
_OBJECT_FORMAT, _DRIVER_FORMAT = "object-2", "driver-2"
UNIT, OBJECT = "unit.cpp", "unit.o"


def object_files(units: Sequence[CompileUnit]) -> dict[str, bytes]:
    """Return the files to compile to an object, by name."""
    return {unit.header_file: unit.header for unit in units} | {UNIT: _source(units)}


def _source(units: Sequence[CompileUnit]) -> bytes:
    kernels = [unit.kernel for unit in units]
    return emitter_of(kernels).registration_source(kernels).encode()


def whole_object(folder: Path, units: Sequence[CompileUnit]) -> bytes:
    """Return the content of a folder's ``OBJECT``; ``ValueError`` unless it is whole and names all kernels."""
    path = folder / OBJECT
    content = read_bytes(path, LARGEST_OBJECT) if path.exists() else b""
    if fault := machine_code.fault(content, [unit.kernel.name for unit in units]):
        raise ValueError(f"{OBJECT}: {fault}")
    return content


def batches(units: Sequence[CompileUnit], size: int) -> list[list[CompileUnit]]:
    """Deal units to batches of about ``size`` and at most twice that, by name.

    A batch begins at a name whose hash says so, so that one more kernel changes one batch.
    """
    dealt: list[list[CompileUnit]] = []
    for unit in sorted(units, key=lambda unit: unit.kernel.name):
        begins = hashlib.sha256(unit.kernel.name.encode()).digest()[0] % size == 0
        if not dealt or begins or len(dealt[-1]) >= 2 * size:
            dealt.append([])
        dealt[-1].append(unit)
    return dealt


class Libraries(Builder):
    """Builds objects and libraries; driver and objects are kept by content."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Options of objects, besides folders and arch."""
        return flags_of(self.compiler.vendor)

    def object_command(self, units: Sequence[CompileUnit]) -> list[str | Path]:
        """Return the arguments that make ``OBJECT`` of ``UNIT`` in the folder with the files."""
        return [*self._arguments(units[0].arch), "-I", ".", "-c", UNIT, "-o", OBJECT]

    def _arguments(self, arch: str) -> list[str | Path]:
        folders = ("-I", self.native.resolve(), "-I", self.tree.include)
        return [*self.flags, *arch_options(self.compiler.vendor, arch), *folders]

    def object_key(self, units: Sequence[CompileUnit]) -> str:
        """Return the cache key of an object with some units."""
        parts: list[bytes | str] = [_OBJECT_FORMAT, self.compiler.version, *self.flags, units[0].arch, _source(units)]
        for unit in units:
            parts += [unit.header, self.read(unit)]
        return caches.key(*parts)

    def read(self, unit: CompileUnit) -> str:
        """Return the digest of what the compiler reads for a unit beside its text: the launcher is code too."""
        launcher = f'\n#include "{emitter_of([unit.kernel]).launcher}"\n'
        return reading.digest(self, unit.header + launcher.encode(), self._arguments(unit.arch))

    def objects(self, units: Sequence[CompileUnit]) -> list[bytes]:
        """Return the objects that together hold all units, which are known to compile."""
        dealt = batches(units, self.settings.batch)
        return [self.cache.made_once(self.object_key(batch), partial(self._object, batch)) for batch in dealt]

    def _object(self, units: Sequence[CompileUnit]) -> bytes:
        names = ", ".join(unit.kernel.name for unit in units)
        with compiler.workspace(object_files(units)) as folder:
            run = self.call(self.object_command(units), folder, 2 * len(units))
            if run.outcome != "ok":
                why = f"{run.outcome} in the library of {names}: {compiler.first_error(run.log)}"
                raise UserError(f"{self.compiler.path}: {why}\n{run.log[-2000:]}")
            try:
                return whole_object(folder, units)
            except ValueError as error:
                raise UserError(
                    f"{self.compiler.path}: its object of {names} cannot be used: {error}; run again, and if that "
                    f"does not help: {self.compiler.vendor.how}"
                ) from error

    def driver(self, arch: str) -> bytes:
        """Return the measuring driver, which is built once for a compiler, an arch and its sources."""
        return self._driver(self.compiler.vendor.backend, gpu_target(arch), DRIVER_SOURCE)

    def emulated_driver(self) -> bytes:
        """Return the driver of the emulated GPU, with the stand-in for the HIP runtime."""
        return self._driver("emulated", "", DRIVER_SOURCE, STAND_IN_SOURCE)

    def _driver(self, backend: str, arch: str, *names: str) -> bytes:
        def build() -> bytes:
            with compiler.workspace({}) as folder:
                sources, output = [self.native / name for name in names], folder / "driver.so"
                run_command(library_command(backend, str(self.compiler.path), arch, sources, output, self.native))
                content = read_bytes(output, LARGEST_OBJECT) if output.exists() else b""
            if fault := machine_code.fault(content):
                how = f"{fault}; {self.compiler.vendor.how}"
                raise UserError(f"{self.compiler.path}: the measuring driver that it made cannot be used: {how}")
            return content

        digest = sources_digest(self.native)
        key = caches.key(_DRIVER_FORMAT, self.compiler.version, self.compiler.script(), backend, arch, digest)
        return self.cache.made_once(key, build)

    def module(self, units: Sequence[CompileUnit]) -> bytes:
        """Return a module with the kernels of units that are known to compile; one without kernels is empty."""
        if not units:
            return b""
        vendor = self.compiler.vendor
        # CUDA: the shared runtime, for driver and modules have to agree on what is current.
        # HIP: what makes one compiler of several may say that everything is source. Without ids of their units
        # (-fuse-cuid=none) all objects have the symbol __hip_cuid_, which nothing reads.
        hip = ["--hip-link", "-fPIC", "-x", "none", "-Wl,-z,muldefs"]
        how = ["-cudart", "shared"] if vendor is compiler.NVCC else hip
        objects = {f"{number}.o": content for number, content in enumerate(self.objects(units))}
        command = ["-shared", *arch_options(vendor, units[0].arch), *how, *objects, "-o", "module.so"]
        with compiler.workspace(objects) as folder:
            run = self.call(command, folder)
            if run.outcome != "ok":
                raise UserError(f"{self.compiler.path}: {run.outcome} in linking a module:\n{run.log[-2000:]}")
            return read_bytes(folder / "module.so", LARGEST_OBJECT)


def library_command(
    backend: str, compiler: str, arch: str, sources: Sequence[Path], output: Path, include: Path = NATIVE_SOURCES
) -> list[str]:
    """Return the command that makes one shared library of C++ sources; the host backend ignores ``arch``."""
    common = ["-std=c++17", "-O2", f"-I{include}", f"-DTILESEER_{backend.upper()}"]
    common.append(f'-DTILESEER_SOURCES="{sources_digest(include)}"')
    # CUDA: the shared runtime, for driver and modules have to agree on what is current.
    language = {
        "cuda": ["-x", "cu", f"-arch={arch}", "-cudart", "shared", "-Xcompiler", "-fPIC"],
        "hip": ["-x", "hip", f"--offload-arch={arch}", "-fPIC"],
        "host": ["-fPIC"],
        "emulated": ["-x", "hip", "--cuda-host-only", "-D__HIP_PLATFORM_AMD__", "-fPIC"],
    }
    return [compiler, *common, *language[backend], "-shared", *map(str, sources), "-o", str(output)]


def sources_digest(include: Path = NATIVE_SOURCES) -> str:
    """Return the digest (16 hex digits) of the driver's sources: a part of its version, on which times depend."""
    digest = hashlib.sha256()
    for path in sorted(include.glob("*.[ch]pp")):
        digest.update(path.name.encode() + b"\0" + read_bytes(path))
    return digest.hexdigest()[:16]


def run_command(command_: Sequence[str]) -> None:
    """Run a compiler; its failure is a ``UserError`` with the end of what it printed."""
    try:
        run = subprocess.run(command_, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise UserError(f"{command_[0]}: cannot be run: {error.strerror}") from error
    if run.returncode:
        raise UserError(f"{' '.join(command_)}: exit status {run.returncode}\n{run.stderr[-2000:]}")
