"""The toolchain for machines without a compiler: it builds nothing and estimates what each kernel would occupy."""

import math
from collections.abc import Sequence

from tileseer.compile.base import CompileResult, CompileUnit, Resources
from tileseer.families.coefficients import Coefficients
from tileseer.families.registry import of_kernels
from tileseer.gpu.hardware import Hardware


class NoToolchain:
    """Estimates registers, LDS and occupancy by the formulas of the kernels' family."""

    def __init__(self, hardware: Hardware, coefficients: Coefficients) -> None:
        self._hardware = hardware
        self._coefficients = coefficients

    def identity(self) -> str:
        """Name of the toolchain: an estimate does not change what a kernel is."""
        return "none"

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """One estimate a unit; a kernel that no launch could fit is a ``resource_limit``."""
        kernels = [unit.kernel for unit in units]
        family = of_kernels([kernel.name for kernel in kernels])
        table = family.part("kernel").frame(kernels)
        found = family.part("resources").estimate(table, self._hardware, self._coefficients)
        rows = zip(*(found[name].tolist() for name in ("fault", "vgprs", "lds_bytes", "occupancy")), strict=True)
        return [_estimated(*row) for row in rows]


def _estimated(fault: str, vgprs: float, lds_bytes: int, occupancy: float) -> CompileResult:
    return CompileResult(
        status="resource_limit" if fault else "ok",
        reason=fault,
        resources=Resources("estimated", _known(vgprs), int(lds_bytes), _known(occupancy)),
        log="",
        seconds=0.0,
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
