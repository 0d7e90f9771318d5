"""The toolchain for machines without a compiler: it builds nothing and estimates what each kernel would occupy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tileseer.build.base import CompileResult, CompileUnit, Resources
from tileseer.facts.hardware import Hardware
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.libraries.registry import library_of_kernels


@dataclass(frozen=True)
class NoToolchain:
    """Estimates registers, LDS and occupancy by the formulas of the kernels' library."""

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
            results.append(CompileResult("resource_limit" if fault else "ok", fault, needs, log="", seconds=0.0))
        return results
