"""Names that files bring, of others too. Each has a pattern: it ends up in paths, pages and C++."""

from typing import Annotated

from pydantic import StringConstraints

from tileseer.config.operations import OPERATION_PATTERN

_WORDS = "(?:_[a-z0-9]+)?" * 2
ARCH_PATTERN = rf"gfx[0-9a-f]+{_WORDS}|sm_[0-9]+a?{_WORDS}"
"""A GPU target; words behind it are a product, a library, or both: ``gfx950_mi355x``, ``gfx942_80_miopen``."""
ConfiguredArch = Annotated[str, StringConstraints(pattern=f"^({ARCH_PATTERN})$")]
Arch = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
"""One in a file, where another family of kernels may have targets of its own."""
Product = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=100)]
"""A key of ``config/hardware.yaml``."""
OperationName = Annotated[str, StringConstraints(pattern=f"^{OPERATION_PATTERN}$")]
Library = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+( [A-Za-z0-9_.+-]+)?$", max_length=100)]
"""A library and its version, as programs tell it: ``cudnn 91900``."""
