"""The shared libraries that a GPU is measured with: the measuring driver, and modules of kernels for it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tileseer.compile import compiler, elf, native
from tileseer.compile.base import CompileUnit
from tileseer.compile.header_tree import HeaderTree
from tileseer.compile.objects import Objects, target
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.settings.compile import CompileSettings

_FORMAT = "driver-1"
BACKENDS = {"hipcc": "hip", "nvcc": "cuda"}
"""The backend of the driver that belongs to a compiler."""


class Libraries:
    """Builds libraries for one compiler. ``native_folder`` holds the sources of driver and launchers."""

    def __init__(
        self,
        found: compiler.Compiler,
        tree: HeaderTree,
        settings: CompileSettings,
        cache: caches.Cache,
        native_folder: Path,
    ) -> None:
        self._compiler = found
        self._settings = settings
        self._cache = cache
        self._native = native_folder
        self._objects = Objects(found, tree, settings, cache, native_folder)

    def driver(self, arch: str) -> bytes:
        """Return the measuring driver; it is built once for a compiler, an arch and its sources."""
        key = caches.key(_FORMAT, self._compiler.version, arch, native.sources_digest(self._native))
        return self._cache.made_once(key, lambda: self._made_driver(arch))

    def _made_driver(self, arch: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="tileseer-") as temporary:
            output = Path(temporary) / "driver.so"
            backend = BACKENDS[self._compiler.vendor.program]
            source = self._native / native.DRIVER_SOURCE
            native.build(native.command(backend, str(self._compiler.path), arch, [source], output, self._native))
            content = output.read_bytes() if output.exists() else b""
        if fault := elf.fault(content):
            how = self._compiler.vendor.how
            raise UserError(f"{self._compiler.path}: the measuring driver that it made cannot be used: {fault}; {how}")
        return content

    def module(self, units: Sequence[CompileUnit]) -> bytes:
        """Return a module with the kernels of some units, which are known to compile; one without kernels is empty."""
        if not units:
            return b""
        with tempfile.TemporaryDirectory(prefix="tileseer-") as temporary:
            folder = Path(temporary)
            objects = []
            for number, content in enumerate(self._objects.of(units)):
                objects.append(f"{number}.o")
                (folder / objects[-1]).write_bytes(content)
            run = self._link(objects, units[0].arch, folder)
            if run.outcome != "ok":
                raise UserError(f"{self._compiler.path}: {run.outcome} in linking a module:\n{run.log[-2000:]}")
            return (folder / "module.so").read_bytes()

    def _link(self, objects: Sequence[str], arch: str, folder: Path) -> compiler.Run:
        vendor = self._compiler.vendor
        # CUDA: the shared runtime, for driver and modules have to agree on what is current.
        # HIP: what makes one compiler of several may say that everything is source.
        how = ["-cudart", "shared"] if vendor is compiler.NVCC else ["--hip-link", "-fPIC", "-x", "none"]
        options = ["-shared", *target(vendor, arch), *how]
        command: list[str | Path] = [self._compiler.path, *options, *objects, "-o", "module.so"]
        return compiler.run(command, folder, self._settings.timeout_seconds, self._settings.memory_mib)
