"""What a library's source says of a CUTLASS kernel."""

from collections.abc import Sequence

from tileseer.core.errors import UserError
from tileseer.families.gemm_kernel import GemmKernel

LAUNCHER = "cutlass_kernel.hpp"


def registration(kernel: GemmKernel) -> str:
    """The line that registers a kernel; the emitted header says the rest."""
    return f"TILESEER_CUTLASS_KERNEL({kernel.name})"


def host_source(kernels: Sequence[GemmKernel]) -> str:
    """CUTLASS has its argument checks in device headers: there is nothing to ask on the CPU."""
    raise UserError("support.source is library, which is for kernels of CK Tile (gfx...); write rules")
