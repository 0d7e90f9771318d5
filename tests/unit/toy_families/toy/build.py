"""What a library's source says of a kernel."""

from tileseer.core.errors import UserError

LAUNCHER = "toy_kernel.hpp"


def registration(kernel):
    return f"TOY_KERNEL({kernel.name})"


def host_source(kernels):
    raise UserError("toy kernels have no checks of their own; write support.source: rules")
