"""The toolchain for machines without a compiler: it builds nothing and estimates what each kernel would occupy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tileseer.compile.base import CompileResult, CompileUnit, Resources
from tileseer.families.coefficients import Coefficients
from tileseer.families.registry import of_kernels
from tileseer.gpu.hardware import Hardware


@dataclass(frozen=True)
class NoToolchain:
    """Estimates registers, LDS and occupancy by the formulas of the kernels' family."""

    hardware: Hardware
    coefficients: Coefficients

    def identity(self) -> str:
        """Name of the toolchain: an estimate does not change what a kernel is."""
        return "none"

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """One estimate a unit; a kernel that no launch could fit is a ``resource_limit``."""
        kernels = [unit.kernel for unit in units]
        family = of_kernels([kernel.name for kernel in kernels])
        table = family.part("kernel").frame(kernels)
        found = family.part("resources").estimate(table, self.hardware, self.coefficients)
        rows = zip(*(found[name].tolist() for name in ("fault", "vgprs", "lds_bytes", "occupancy")), strict=True)
        results = []
        for fault, vgprs, lds_bytes, occupancy in rows:
            needs = Resources("estimated", _known(vgprs), int(lds_bytes), _known(occupancy))
            results.append(CompileResult("resource_limit" if fault else "ok", fault, needs, log="", seconds=0.0))
        return results


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
