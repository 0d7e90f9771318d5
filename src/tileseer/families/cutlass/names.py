"""Names of CUTLASS kernels: there is one scheme, and a name says every field."""

from tileseer.families.cutlass.kernel import CutlassKernel, parse


def completed(name: str, arch: str) -> tuple[CutlassKernel, str]:
    """Kernel of a name; nothing is assumed."""
    return parse(name), ""
