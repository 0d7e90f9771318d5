"""Kernel names as users and other programs write them, completed to whole kernels."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tileseer.core.errors import UserError
from tileseer.kernels import registry
from tileseer.kernels.ck_tile import names as ck_tile
from tileseer.kernels.gemm_kernel import Kernel
from tileseer.kernels.grammar import COUNT
from tileseer.kernels.miopen import names as miopen
from tileseer.problems.operation import Operation

_LAUNCH = re.compile(rf"(?P<name>.+)@splitk(?P<split_k>{COUNT})", re.ASCII)

COMPLETIONS: dict[str, Callable[[str, str], tuple[Kernel, str]]] = {
    "ck_tile": ck_tile.completed,
    "miopen": miopen.completed,
}
"""(name, arch) to the kernel that a name of any scheme stands for, and what the name leaves open, as words.

A family without an entry has one scheme, that of its kernels' own names.
"""
CHANNEL_MULTIPLE = "channel_multiple"
"""Word of ``Named.assumed``."""


@dataclass(frozen=True)
class Named:
    """What a name stands for."""

    text: str = field(compare=False)
    """The name as it was given."""
    kernel: Kernel
    split_k: int
    assumed: str
    """What the name leaves open or says otherwise, as ``field=value`` words; empty for a complete name."""

    @property
    def channel_multiple(self) -> int:
        """To which multiple the channels of a group are padded before the kernel runs; 1: they are not."""
        words = dict(word.split("=", 1) for word in self.assumed.split())
        return int(words.get(CHANNEL_MULTIPLE, 1))


def launched(text: str) -> tuple[str, int]:
    """Name of a candidate's kernel, and its split-K: 1 without ``@splitkN``."""
    launch = _LAUNCH.fullmatch(text)
    return (launch["name"], int(launch["split_k"])) if launch else (text, 1)


def read(text: str, arch: str, operation: Operation | None = None, ndim: int = 2) -> Named:
    """Kernel that ``text`` stands for on ``arch``, with ``@splitkN`` for a split reduction; ``UserError`` if none.

    The ending of a header, source or library file is ignored. Where the ``operation`` and ``ndim`` of the problem are
    known, a name may leave them out, if the family has such names.
    """
    name = re.sub(r"\.(hpp|cuh|cpp|cu|so|o)$", "", text.strip())
    name, split_k = launched(name)
    family = registry.of_arch(arch)
    if any(name.startswith(other.prefix) for other in registry.FAMILIES if other is not family):
        raise UserError(f"{text!r} is no kernel of {arch}; their names begin with {family.prefix}")
    kind = family.kernel
    if operation is not None and kind.short and name in kind.choices[kind.short]:
        name = kind(operation.variant, operation.dtype, ndim, **{kind.short: name}).name
    if family.name in COMPLETIONS:
        kernel, assumed = COMPLETIONS[family.name](name, arch)
        return Named(text, kernel, split_k, assumed)
    return Named(text, kind.parse(name), split_k, "")
