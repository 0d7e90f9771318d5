"""The toolchain for machines without a compiler: it builds nothing and estimates what each kernel would occupy."""

from __future__ import annotations

from collections.abc import Sequence

from tileseer.compile.base import CompileResult, CompileUnit, Resources
from tileseer.families.ck_tile import kernel as ck_tile
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.ck_tile.resources import estimate
from tileseer.families.cutlass.kernel import CutlassKernel
from tileseer.gpu.coefficients import Coefficients
from tileseer.gpu.hardware import Hardware


class NoToolchain:
    """Estimates registers, LDS and occupancy with the formulas of ``tileseer.families.ck_tile.resources``."""

    def __init__(self, hardware: Hardware, coefficients: Coefficients) -> None:
        self._hardware = hardware
        self._coefficients = coefficients

    def identity(self) -> str:
        """Return the name of the toolchain: an estimate does not change what a kernel is."""
        return "none"

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Return one estimate a unit; a kernel that no launch could fit is a ``resource_limit``."""
        kernels = [unit.kernel for unit in units]
        ours = [kernel for kernel in kernels if isinstance(kernel, KernelConfig)]
        table = estimate(ck_tile.frame(ours), self._hardware, self._coefficients)
        columns = table[["fault", "vgprs", "lds_bytes", "occupancy"]].to_numpy()
        estimated = dict(zip((kernel.name for kernel in ours), columns, strict=True))
        return [
            self._cutlass(kernel) if isinstance(kernel, CutlassKernel) else _estimated(*estimated[kernel.name])
            for kernel in kernels
        ]

    def _cutlass(self, kernel: CutlassKernel) -> CompileResult:
        """Return what is known without formulas for registers: the shared memory of the operands."""
        room = self._hardware.lds_bytes
        fault = f"{kernel.shared_bytes} bytes of shared memory, {room} a block" if kernel.shared_bytes > room else ""
        return _estimated(fault, None, kernel.shared_bytes, None)


def _estimated(fault: str, vgprs: float | None, lds_bytes: float, occupancy: float | None) -> CompileResult:
    return CompileResult(
        status="resource_limit" if fault else "ok",
        reason=fault,
        artefact=None,
        resources=Resources(
            "estimated",
            None if vgprs is None else float(vgprs),
            int(lds_bytes),
            None if occupancy is None else float(occupancy),
        ),
        log="",
        seconds=0.0,
    )
