"""Kernel names as users and other programs write them, completed to whole kernels."""

import re
from dataclasses import dataclass, field

from tileseer.core.errors import UserError
from tileseer.libraries import registry
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.grammar import COUNT, check_length
from tileseer.problems.operation import Operation

_SPLIT_LAUNCH = re.compile(rf"(?P<name>.+)@splitk(?P<split_k>{COUNT})", re.ASCII)


@dataclass(frozen=True)
class Named:
    """What a name means."""

    text: str = field(compare=False)
    """The name as it was given."""
    kernel: Kernel
    split_k: int
    assumed: str
    """What the name leaves open or says otherwise, as ``field=value`` words; empty for a complete name."""


def read_kernel_name(text: str, arch: str, operation: Operation | None = None, ndim: int = 2) -> Named:
    """Return the kernel that ``text`` means on ``arch``, ``@splitkN`` for a split reduction; ``UserError`` if none.

    The ending of a header, source or library file is ignored. Where the ``operation`` and ``ndim`` of the problem are
    known, a name may leave them out, if the library has such names.
    """
    check_length(text)
    name = re.sub(r"\.(hpp|cuh|cpp|cu|so|o)$", "", text.strip())
    launch = _SPLIT_LAUNCH.fullmatch(name)
    name, split_k = (launch["name"], int(launch["split_k"])) if launch else (name, 1)
    library = registry.library_of_arch(arch)
    if any(name.startswith(other.prefix) for other in registry.installed() if other is not library):
        raise UserError(f"{text!r} is no kernel of {arch}; their names begin with {library.prefix}")
    kind = library.kernel
    if operation is not None and kind.short and name in kind.short_names:
        name = kind(operation.variant, operation.dtype, ndim, **{kind.short: name}).name
    kernel, assumed = library.complete_name(name, arch) if library.complete_name else (kind.parse(name), "")
    return Named(text, kernel, split_k, assumed)
