"""How kernels are put into a library: their headers, and the lines that register them."""

from collections.abc import Sequence

from tileseer.families.gemm_kernel import Kernel
from tileseer.families.registry import of_kernels

LACK = ".lack"
"""Suffix of a file that stands in a bundle for a kernel without a header: it says why there is none."""


def header_file(kernel: Kernel) -> str:
    """File name of a kernel's emitted header."""
    return f"{kernel.name}{of_kernels([kernel.name]).header_suffix}"


def source(kernels: Sequence[Kernel]) -> str:
    """C++ source that registers kernels of one family, in the given order."""
    build = of_kernels([kernel.name for kernel in kernels]).part("build")
    includes = [*(header_file(kernel) for kernel in kernels), build.LAUNCHER]
    lines = [build.registration(kernel) for kernel in kernels]
    return "".join(f'#include "{path}"\n' for path in includes) + "\n" + "".join(f"{line}\n" for line in lines)
