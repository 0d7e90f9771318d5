"""How kernels are put into a library: their headers, and the lines that register them."""

from collections.abc import Sequence

from tileseer.kernels.gemm_kernel import Kernel
from tileseer.kernels.registry import of_kernels

LACK = ".lack"
"""Suffix of a bundle's file for a kernel that has no header: it says why."""


def header_file(kernel: Kernel) -> str:
    """File name of a kernel's emitted header."""
    return f"{kernel.name}{of_kernels([kernel.name]).header_suffix}"


def registration_source(kernels: Sequence[Kernel]) -> str:
    """C++ source that registers kernels of one family, in the order of ``kernels``."""
    family = of_kernels([kernel.name for kernel in kernels])
    includes = [*(header_file(kernel) for kernel in kernels), family.launcher]
    lines = (
        family.registration.format(name=k.name, variant=k.variant.upper(), ndim=k.ndim, dtype=k.dtype.upper())
        for k in kernels
    )
    return "".join(f'#include "{path}"\n' for path in includes) + "\n" + "".join(f"{line}\n" for line in lines)
