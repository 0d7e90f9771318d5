"""Names that files bring, of others too. Each has a pattern: it ends up in paths, pages and C++."""

import re
from typing import Annotated, Any

from pydantic import StringConstraints, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from tileseer.core.strict_tables import expected, wrong
from tileseer.facts.operations import OPERATION_PATTERN

_WORDS = "(?:_[a-z0-9]+)?" * 2
ARCH_PATTERN = rf"gfx[0-9a-f]+{_WORDS}|sm_[0-9]+a?{_WORDS}"
"""A GPU target; words behind it are a product, a library, or both: ``gfx950_mi355x``, ``gfx942_80_miopen``."""
NAMES_OF_ARCH = {
    "gfx90a": ("mi210", "mi250", "cdna2"),
    "gfx942": ("mi300", "mi308", "mi325", "cdna3"),
    "gfx950": ("mi350", "mi355", "cdna4"),
    "gfx1100": ("7900", "rdna3"),
    "gfx1101": ("7800", "7700"),
    "gfx1151": ("8060", "8050", "strixhalo", "395"),
    "gfx1200": ("9060",),
    "gfx1201": ("9070", "rdna4"),
    "sm_90": ("h100", "h200", "hopper"),
}
"""How people call GPUs of an arch."""


def arch_meant(text: str) -> str | None:
    """Return the arch that is meant by the name of a GPU."""
    word = re.sub(r"[^a-z0-9]", "", text.lower())
    meant = (arch for arch, own in NAMES_OF_ARCH.items() if any(name in word for name in (*own, arch.replace("_", ""))))
    return next(meant, None)


def arch_hint(text: str) -> str:
    """Return which arch is meant by the name of a GPU, or the archs that there are."""
    if meant := arch_meant(text):
        return f"do you mean {meant}?"
    return (
        f"there are {', '.join(f'{arch} ({names[0].upper()})' for arch, names in NAMES_OF_ARCH.items())}; "
        "one of your own begins with its target: gfx950_mine"
    )


def _arch(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError as error:
        raise wrong(f"should be one arch ({arch_hint(str(value)).rstrip('?')})") from error


ConfiguredArch = Annotated[str, StringConstraints(pattern=f"^({ARCH_PATTERN})$"), WrapValidator(_arch)]
Arch = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
"""One in a file, where another library may have targets of its own."""
Product = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=100),
    expected("a key of config/hardware.yaml, such as gfx942_mi300x"),
]
"""A key of ``config/hardware.yaml``."""
KernelName = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=1000)]
"""Of a kernel or candidate, of whatever library: visible ASCII characters."""
OperationName = Annotated[str, StringConstraints(pattern=f"^{OPERATION_PATTERN}$")]
Library = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+( [A-Za-z0-9_.+-]+)?$", max_length=100)]
"""A library and its version, as programs tell it: ``cudnn 91900``."""
