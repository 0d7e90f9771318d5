"""Names of solvers: MIOpen's own, behind the direction, the data type and the dimensionality."""

from tileseer.core.errors import UserError
from tileseer.kernels.miopen.kernel import Solver, parse
from tileseer.kernels.miopen.solvers import SOLVERS


def completed(name: str, arch: str) -> tuple[Solver, str]:
    """Solver of a name; nothing is assumed."""
    if name in SOLVERS:
        raise UserError(
            f"solver {name!r} may be of any direction and data type: give the problems columns direction and dtype, or "
            f"write the whole name, for example {Solver('forward', 'fp16', 2, name).name}"
        )
    return parse(name), ""
