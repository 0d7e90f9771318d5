"""The toolchain for NVIDIA GPUs: whole objects, of several kernels a unit, that the library stage links as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tileseer.compile import compiler, cubin
from tileseer.compile.base import CompileResult, CompileUnit, Resources
from tileseer.compile.batches import BatchToolchain, write_texts
from tileseer.compile.header_tree import HeaderTree
from tileseer.compile.objects import UNIT, Objects, batches
from tileseer.compile.occupancy import blocks_per_sm
from tileseer.core import cache as caches
from tileseer.gpu.hardware import Hardware
from tileseer.settings.compile import CompileSettings

ASKING = ("--keep", "-Xptxas", "--verbose")
"""Keeps the cubin, and has the assembler say what each kernel takes: neither changes the code."""


class NvccToolchain(BatchToolchain):
    """Compiles for one arch against one CUTLASS tree."""

    result_format = "nvcc-result-1"

    def __init__(
        self,
        found: compiler.Compiler,
        tree: HeaderTree,
        settings: CompileSettings,
        hardware: Hardware,
        cache: caches.Cache,
        native: Path,
    ) -> None:
        super().__init__(found, tree, settings, hardware, cache)
        self._objects = Objects(found, tree, settings, cache, native)

    def identity(self) -> str:
        """Return compiler and flags."""
        return "\n".join(("nvcc", self._compiler.version, *self._objects.flags))

    def key(self, unit: CompileUnit) -> str:
        """Return what the result is kept under: the launcher is compiled too, and may fail."""
        return caches.key(super().key(unit), self._objects.launcher_digest(unit))

    def batches(self, units: Sequence[CompileUnit]) -> list[list[CompileUnit]]:
        """Deal the kernels as the library stage does, so that it finds the objects."""
        return batches(units, self._settings.batch)

    def suspects(self, units: Sequence[CompileUnit], log: str) -> set[int]:
        """Return the kernels that the log names."""
        return {index for index, unit in enumerate(units) if unit.kernel.name in log}

    def blocks_per_cu(self, threads: int, registers: int, lds_bytes: int) -> float:
        """Return the blocks that fit by registers, shared memory and warp slots."""
        return blocks_per_sm(threads, registers, lds_bytes, self._hardware)

    def run(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, list[CompileResult]]:
        """Compile units in one run, in a folder that is gone afterwards; keep the object."""
        with tempfile.TemporaryDirectory(prefix="tileseer-") as temporary:
            folder = Path(temporary)
            write_texts(folder, self._objects.files(units) | {UNIT: self._objects.source(units)})
            run = self.call(
                [*ASKING, *self._objects.command(units)], folder, self._settings.timeout_seconds * len(units)
            )
            if run.outcome != "ok":
                return run, []
            try:
                content = (folder / "unit.o").read_bytes()
                (code,) = (path.read_bytes() for path in folder.glob("*.cubin"))
                self._objects.check(units, content)
                results = _results(units, content, code, run)
            except (FileNotFoundError, ValueError, KeyError) as error:
                return replace(run, outcome="broken", log=f"object and cubin do not hold the kernels: {error}"), []
        self._objects.keep(units, content)
        return run, results


def _results(units: Sequence[CompileUnit], content: bytes, code: bytes, run: compiler.Run) -> list[CompileResult]:
    usages, codes = cubin.usages(run.log), cubin.code(code)
    share = replace(run, seconds=run.seconds / len(units))
    results = []
    for unit in units:
        # The kernel's type in the mangled name: its namespace is the kernel's name, with its length before it.
        name = unit.kernel.name
        (symbol,) = (symbol for symbol in codes if f"{len(name)}{name}6Kernel" in symbol)
        size, code_hash = codes[symbol]
        usage = usages[symbol]
        threads, shared = cubin.numbers(content, f"{name}_block", 2)
        resources = Resources(
            source="code_object", vgprs=float(usage.registers), lds_bytes=usage.static_shared_bytes + shared,
            scratch_bytes=usage.stack_bytes, vgpr_spills=usage.spills, threads=threads, code_bytes=size,
        )  # fmt: skip
        results.append(CompileResult("ok", "", None, resources, "", share.seconds, run.peak_mib, code_hash))
    return results
