"""What every toolchain takes and gives: units to compile, results, resources; and the one that only estimates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tileseer.facts.hardware import Hardware
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.registry import emitter_of, library_of_kernels

ESTIMATED_BYTES = 8_000
ESTIMATED_SECONDS = 5.0
"""Of a kernel that was not compiled: machine code and CPU time, means of 393 CK Tile kernels for gfx950, ten a unit."""


@dataclass(frozen=True)
class CompileUnit:
    """One kernel to compile: its config and the text of its header."""

    kernel: Kernel
    arch: str
    header: bytes
    """Empty where ``lack`` says why there is none."""
    lack: str = ""
    """Why the kernel library has no form for the kernel; empty if it has one."""
    splits_k: bool = True
    """Whether the kernel may run with a split-K above 1."""

    @property
    def header_file(self) -> str:
        """Name of the header."""
        return emitter_of([self.kernel]).header_file(self.kernel)


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies. ``None`` is what the source does not know; an estimate knows little."""

    source: str
    """``estimated`` by a formula, or ``code_object``: read from compiled code."""
    vgprs: float | None = None
    """Vector registers a lane, without accumulation registers."""
    lds_bytes: int | None = None
    """LDS a block."""
    occupancy: float | None = None
    """Blocks resident on one CU."""
    agprs: int | None = None
    """Accumulation registers a lane."""
    sgprs: int | None = None
    """Scalar registers a wave."""
    scratch_bytes: int | None = None
    """Private memory a lane."""
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    threads: int | None = None
    """Threads of a block."""
    code_bytes: int | None = None
    instructions: dict[str, int] | None = None
    """How many of each opcode the code has; loops count once."""


@dataclass(frozen=True)
class CompileResult:
    """Result of one unit."""

    status: str
    """ok, compile_error, compile_timeout, compile_memory, unsupported_by_ck, resource_limit (no launch fits on this
    GPU, whatever the problem), or pruned (built, and beyond a limit of ``build``)."""
    reason: str
    """Why it is not ``ok``, one line; else empty."""
    resources: Resources
    log: str
    code_hash: str = ""
    """16 hex digits of the machine code: equal for kernels with identical code; empty if there is none."""
    error_digest: str = ""
    """16 hex digits of the error without names and places: equal for kernels that fail alike."""
    repeatable: bool = True
    """Whether another run would end so again; not, for instance, if the time or the memory was too short."""


class Toolchain(Protocol):
    """Turns units into kernels."""

    def identity(self) -> str:
        """Return what a result depends on besides the unit: compiler, version and flags; a part of the kernel id."""

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Compile every unit; a failure is a result, not an exception."""


@dataclass(frozen=True)
class NoToolchain:
    """Builds nothing, for machines without a compiler: estimates what kernels occupy by their library's formulas."""

    hardware: Hardware
    coefficients: Coefficients

    def identity(self) -> str:
        """Return the name of the toolchain: an estimate does not change what a kernel is."""
        return "none"

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Return one estimate a unit; a kernel that no launch could fit is a ``resource_limit``."""
        kernels = [unit.kernel for unit in units]
        library = library_of_kernels([kernel.name for kernel in kernels])
        estimate = library.made_here(library.estimate)
        estimates = estimate(library.kernel.frame(kernels), self.hardware, self.coefficients)
        rows = zip(*(estimates[name].tolist() for name in ("fault", "vgprs", "lds_bytes", "occupancy")), strict=True)
        results = []
        for fault, vgprs, lds_bytes, occupancy in rows:
            registers, blocks = (None if math.isnan(value) else float(value) for value in (vgprs, occupancy))
            needs = Resources("estimated", registers, int(lds_bytes), blocks)
            results.append(CompileResult("resource_limit" if fault else "ok", fault, needs, log=""))
        return results
