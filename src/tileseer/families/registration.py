"""How the kernels of each family are put into a library: their header, and the lines that register them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tileseer import families
from tileseer.families.gemm_kernel import GemmKernel

LACK = ".lack"
"""Suffix of a file that stands in a bundle for a kernel without a header: it says why there is none."""


@dataclass(frozen=True)
class Registration:
    """What a library's source says of a kernel."""

    launcher: str
    """The header of ``workflow/native`` that makes a launcher of a kernel."""
    line: str
    """A macro of that header; ``{name}, {direction}, {ndim}, {dtype}`` are the kernel's."""


OF_FAMILY = {
    families.CK_TILE.name: Registration(
        "ck_tile_kernel.hpp", "TILESEER_CK_KERNEL({name}, CONV_{direction}, {ndim}, CONV_{dtype})"
    ),
    families.CUTLASS.name: Registration("cutlass_kernel.hpp", "TILESEER_CUTLASS_KERNEL({name})"),
}


def header_file(kernel: GemmKernel) -> str:
    """Return the file name of a kernel's emitted header."""
    return f"{kernel.name}{families.of_kernels([kernel.name]).header_suffix}"


def source(kernels: Sequence[GemmKernel]) -> str:
    """Return the C++ source that registers some kernels, all of one family, in the given order."""
    form = OF_FAMILY[families.of_kernels([kernel.name for kernel in kernels]).name]
    includes = [*(header_file(kernel) for kernel in kernels), form.launcher]
    lines = [
        form.line.format(
            name=kernel.name, direction=kernel.variant.upper(), ndim=kernel.ndim, dtype=kernel.dtype.upper()
        )
        for kernel in kernels
    ]
    return "".join(f'#include "{path}"\n' for path in includes) + "\n" + "".join(f"{line}\n" for line in lines)
