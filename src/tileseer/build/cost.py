"""What compiling costs: an estimate, and what it took."""

ESTIMATED_BYTES = 8_000
ESTIMATED_SECONDS = 5.0
"""Of a kernel that was not compiled: machine code and CPU time, means of 393 CK Tile kernels for gfx950, ten a unit."""


def estimate_cost(kernels: int, units: int) -> str:
    """Say what so many kernels will take."""
    cost = describe_cost(ESTIMATED_SECONDS * kernels, ESTIMATED_BYTES * kernels)
    return f"{kernels:,} kernels in {units:,} units, estimated {cost}"


def describe_cost(seconds: float, code_bytes: int) -> str:
    """Say the CPU time and the size of what is built."""
    return f"{seconds / 3600:.2g} CPU hours and {code_bytes / 1e6:.1f} MB of machine code"
