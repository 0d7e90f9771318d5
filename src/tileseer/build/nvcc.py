"""The toolchain for NVIDIA GPUs: whole objects, of several kernels a unit, that the library stage links as they are."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tileseer.build import compiler, machine_code, modules
from tileseer.build.base import CompileUnit
from tileseer.build.batches import BatchToolchain
from tileseer.build.machine_code import KernelCode
from tileseer.core.reading import LARGEST_OBJECT, read_bytes

VERBOSE = ("--keep", "-Xptxas", "--verbose")
"""Keeps the cubin, and has the assembler print what each kernel takes: neither changes the code."""
RESERVED_SHARED_BYTES = 1024
"""Shared memory that the system takes of each resident block: a multiprocessor has room for it beside the largest block
that ``hardware.lds_kib`` allows (CUDA C++ programming guide, compute capability 8.0 and later)."""
SHARED_GRANULE = 128
BLOCKS_PER_SM = 32


class NvccToolchain(BatchToolchain):
    """Compiles for one arch against one tree of headers."""

    result_format = "nvcc-result-3"

    @cached_property
    def _libraries(self) -> modules.Libraries:
        return modules.Libraries(self.compiler, self.tree, self.settings, self.cache, self.native)

    def identity(self) -> str:
        """Return what a result depends on besides the unit: compiler, version and flags; a part of the kernel id."""
        return "\n".join(("nvcc", self.compiler.version, *self._libraries.flags))

    def read(self, unit: CompileUnit) -> str:
        """Return the digest that the library stage has: the launcher is compiled too, and may fail."""
        return self._libraries.read(unit)

    def batches(self, units: Sequence[CompileUnit]) -> list[list[CompileUnit]]:
        """Deal the kernels as the library stage does, so that it finds the objects."""
        return modules.batches(units, self.settings.batch)

    def blocks_per_cu(self, threads: int, registers: int, lds_bytes: int) -> float:
        """Return the blocks that are resident on one multiprocessor; ``lds_bytes`` is the shared memory of a block."""
        taken = -(-lds_bytes // SHARED_GRANULE) * SHARED_GRANULE + RESERVED_SHARED_BYTES
        by_shared = (self.hardware.lds_bytes + RESERVED_SHARED_BYTES) // taken
        return min(super().blocks_per_cu(threads, registers, 0), float(by_shared), float(BLOCKS_PER_SM))

    def run(self, units: Sequence[CompileUnit]) -> tuple[compiler.Run, list[KernelCode]]:
        """Compile units in one run; keep the object."""
        with compiler.workspace(modules.object_files(units)) as folder:
            run = self.call([*VERBOSE, *self._libraries.object_command(units)], folder, len(units))
            if run.outcome != "ok":
                return run, []
            try:
                content = modules.whole_object(folder, units)
                (cubin,) = (read_bytes(path, LARGEST_OBJECT) for path in folder.glob("*.cubin"))
                kernels = _kernels(units, content, cubin, run.log)
            except (ValueError, KeyError) as error:
                return replace(run, outcome="broken", log=f"object and cubin do not contain the kernels: {error}"), []
        # The library stage links it as it is.
        self.cache.put(self._libraries.object_key(units), content)
        return run, kernels


def _kernels(units: Sequence[CompileUnit], content: bytes, cubin: bytes, log: str) -> list[KernelCode]:
    usages, codes = machine_code.ptxas_usages(log), machine_code.cubin_code(cubin)
    kernels = []
    for name in (unit.kernel.name for unit in units):
        # The kernel's type in the mangled name: its namespace is the kernel's name, with its length before it.
        (symbol,) = (symbol for symbol in codes if f"{len(name)}{name}6Kernel" in symbol)
        usage, (size, code_hash) = usages[symbol], codes[symbol]
        threads, shared = machine_code.numbers(content, f"{name}_block", 2)
        lds_bytes = (usage.lds_bytes or 0) + shared
        kernels.append(KernelCode(replace(usage, threads=threads, lds_bytes=lds_bytes, code_bytes=size), code_hash))
    return kernels
