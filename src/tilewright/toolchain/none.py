"""The toolchain for machines without a compiler: it builds nothing and estimates what each kernel would occupy."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import kernel as kernels
from tilewright.devices.coefficients import Coefficients
from tilewright.hardware import Hardware
from tilewright.resources import estimate
from tilewright.toolchain.base import CompileResult, CompileUnit, Resources


class NoToolchain:
    """Estimates registers, LDS and occupancy with the formulas of ``tilewright.resources``."""

    def __init__(self, hardware: Hardware, coefficients: Coefficients) -> None:
        self._hardware = hardware
        self._coefficients = coefficients

    def identity(self) -> str:
        """Return the name of the toolchain: an estimate does not change what a kernel is."""
        return "none"

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Return one estimate a unit; a kernel that no launch could fit is a ``resource_limit``."""
        table = estimate(kernels.frame([unit.kernel for unit in units]), self._hardware, self._coefficients)
        return [
            CompileResult(
                status="resource_limit" if fault else "ok",
                reason=fault,
                artefact=None,
                resources=Resources("estimated", float(vgprs), int(lds_bytes), float(occupancy)),
                log="",
                seconds=0.0,
            )
            for fault, vgprs, lds_bytes, occupancy in table[["fault", "vgprs", "lds_bytes", "occupancy"]].to_numpy()
        ]
