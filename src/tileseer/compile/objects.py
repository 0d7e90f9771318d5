"""Object files of kernel libraries: a few kernels each, host and device code, registered with the measuring driver."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tileseer.compile import compiler, elf
from tileseer.compile.base import CompileUnit
from tileseer.compile.header_tree import HeaderTree
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.families import registration
from tileseer.settings.compile import CompileSettings

_FORMAT = "object-1"
COMMON = ("-O3", "-std=c++17")
HIP = (
    "-x", "hip", "-fPIC", "-DTILESEER_HIP", "-D__HIP_PLATFORM_AMD__", "-fuse-cuid=none", "-mllvm",
    "-enable-noalias-to-md-conversion=0", "-Wno-undefined-func-template", "-Wno-float-equal",
)  # fmt: skip
# The warnings are of CUTLASS's own headers.
CUDA = ("-x", "cu", "-DTILESEER_CUDA", "-Xcompiler", "-fPIC", "--disable-warnings")
UNIT = "unit.cpp"


def target(vendor: compiler.Vendor, arch: str) -> list[str]:
    """Return the options that ask for machine code of one arch, and of no other."""
    if vendor is compiler.NVCC:
        return ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}"]
    return [f"--offload-arch={arch}"]


class Objects:
    """Compiles objects, each kept by content. ``native`` is the folder of the launchers, workflow/native."""

    def __init__(
        self, found: compiler.Compiler, tree: HeaderTree, settings: CompileSettings, cache: caches.Cache, native: Path
    ) -> None:
        self._compiler = found
        self._tree = tree
        self._native = HeaderTree(native.resolve())
        self._settings = settings
        self._cache = cache

    @property
    def flags(self) -> tuple[str, ...]:
        """What objects are compiled with, besides the folders and the arch."""
        return (*COMMON, *(CUDA if self._compiler.vendor is compiler.NVCC else HIP))

    def launcher_digest(self, unit: CompileUnit) -> str:
        """Return a digest of the launcher's headers: they become part of the code as well."""
        return self._native.digest(self.source([unit]))

    def source(self, units: Sequence[CompileUnit]) -> bytes:
        """Return what is compiled."""
        return registration.source([unit.kernel for unit in units]).encode()

    def command(self, units: Sequence[CompileUnit]) -> list[str | Path]:
        """Return the arguments that make ``unit.o`` of ``UNIT`` in the folder with the headers."""
        return [
            *self.flags, *target(self._compiler.vendor, units[0].arch), "-I", self._native.include, "-I",
            self._tree.include, "-I", ".", "-c", UNIT, "-o", "unit.o",
        ]  # fmt: skip

    def files(self, units: Sequence[CompileUnit]) -> dict[str, bytes]:
        """Return the files that are compiled."""
        return {registration.header_file(unit.kernel): unit.header for unit in units}

    def key(self, units: Sequence[CompileUnit]) -> str:
        """Return what the object of some kernels is kept under."""
        parts: list[bytes | str] = [_FORMAT, self._compiler.version, *self.flags, units[0].arch, self.source(units)]
        for unit in units:
            parts += [unit.header, self._tree.digest(unit.header), self.launcher_digest(unit)]
        return caches.key(*parts)

    def keep(self, units: Sequence[CompileUnit], content: bytes) -> None:
        """Keep an object that was made elsewhere, by ``command``."""
        self._cache.put(self.key(units), content)

    def of(self, units: Sequence[CompileUnit]) -> list[bytes]:
        """Return objects that together hold all units, which are known to compile."""
        return [self._object(batch) for batch in batches(units, self._settings.batch)]

    def _object(self, units: Sequence[CompileUnit]) -> bytes:
        return self._cache.made_once(self.key(units), lambda: self._made(units))

    def _made(self, units: Sequence[CompileUnit]) -> bytes:
        names = ", ".join(unit.kernel.name for unit in units)
        with tempfile.TemporaryDirectory(prefix="tileseer-") as temporary:
            folder = Path(temporary)
            for path, text in (self.files(units) | {UNIT: self.source(units)}).items():
                (folder / path).write_bytes(text)
            command = [self._compiler.path, *self.command(units)]
            timeout = 2.0 * self._settings.timeout_seconds * len(units)
            run = compiler.run(command, folder, timeout, self._settings.memory_mib)
            if run.outcome != "ok":
                raise UserError(f"{self._compiler.path}: {run.outcome} in the library of {names}:\n{run.log[-2000:]}")
            try:
                content = (folder / "unit.o").read_bytes()
                self.check(units, content)
            except (FileNotFoundError, ValueError) as error:
                raise UserError(
                    f"{self._compiler.path}: its object of {names} cannot be used: {error}; run again, and if that "
                    f"does not help: {self._compiler.vendor.how}"
                ) from error
        return content

    @staticmethod
    def check(units: Sequence[CompileUnit], content: bytes) -> None:
        """Raise ``ValueError`` unless ``content`` is a whole object file with the names of all kernels."""
        if fault := elf.fault(content, [unit.kernel.name for unit in units]):
            raise ValueError(f"unit.o: {fault}")


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
