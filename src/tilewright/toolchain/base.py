"""The seam between the workflow and a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tilewright.kernel import KernelConfig

BUILD_STATUSES = ("ok", "compile_error", "compile_timeout", "unsupported_by_ck", "resource_limit")
"""``resource_limit``: the kernel cannot be launched on this GPU whatever the problem."""
RESOURCE_SOURCES = ("estimated", "code_object")


@dataclass(frozen=True)
class CompileUnit:
    """One kernel to compile: its config and the text of its header."""

    kernel: KernelConfig
    arch: str
    header: bytes


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies; ``source`` says whether a compiler said so or a formula did."""

    source: str
    vgprs: float
    """Vector registers a lane."""
    lds_bytes: int
    """LDS a block."""
    occupancy: float
    """Blocks resident on one CU."""


@dataclass(frozen=True)
class CompileResult:
    """What became of a unit. ``seconds`` is for logs: it must not reach a file that another stage reads."""

    status: str
    reason: str
    artefact: Path | None
    resources: Resources
    log: str
    seconds: float


class Toolchain(Protocol):
    """Turns units into kernels."""

    def identity(self) -> str:
        """Return what a result depends on besides the unit: compiler, version, flags; part of the kernel id."""
        ...

    def compile(self, units: Sequence[CompileUnit]) -> list[CompileResult]:
        """Compile every unit; a failure is a result, not an exception."""
        ...
