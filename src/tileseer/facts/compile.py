"""Settings of the compile stage, of the trees that kernels are compiled against, and of the cache."""

from typing import Literal

from pydantic import Field

from tileseer.facts.section import AbsolutePath, Section


class CkSettings(Section):
    """The Composable Kernel tree that kernels are written for and compiled against."""

    root: AbsolutePath | None = None
    """Top folder of the tree; by default that of the ROCm install, or the one of ``make toolchain``."""
    api: Literal["auto", "2026.06", "2025.11"] = "auto"
    """Level of its API; ``auto`` detects it from the tree; it is 2026.06 if nothing is compiled and no root is set."""


class CutlassSettings(Section):
    """The CUTLASS tree that kernels of NVIDIA GPUs are compiled against."""

    root: AbsolutePath | None = None
    """Top folder of the tree; by default $CUTLASS_PATH, that of PyPI's nvidia-cutlass, or the one of
    ``make cuda-toolchain``."""


SECTIONS_OF_LIBRARIES: dict[str, type[CkSettings] | type[CutlassSettings]] = {
    "ck": CkSettings,
    "cutlass": CutlassSettings,
}
"""Sections of the libraries of kernels."""


class CompileSettings(Section):
    """How headers become kernels."""

    toolchain: Literal["none", "hipcc", "nvcc"] = "none"
    """``none`` compiles nothing and estimates each kernel's registers, LDS and occupancy. ``hipcc`` is for archs of AMD
    (gfx...), ``nvcc`` for those of NVIDIA (sm_...)."""
    compiler: AbsolutePath | None = None
    """The compiler; by default that of the ROCm or CUDA install, of PATH, of a PyPI package, or of
    ``make toolchain`` or ``make cuda-toolchain``."""
    batch: int = Field(10, ge=1, le=50)
    """Kernels of one compiler run; their common templates are instantiated once. Fewer need less memory."""
    timeout_seconds: int = Field(300, ge=1)
    """Wall-clock time for each kernel of a run."""
    memory_mib: int = Field(3072, ge=256)
    """Address space of one compiler run; jobs declare it too, so that they never swap together."""


class CacheSettings(Section):
    """Where what was compiled once is kept, outside of ``results``. It changes no result."""

    folder: AbsolutePath | None = None
    """Absolute path of the cache; by default $XDG_CACHE_HOME/tileseer or ~/.cache/tileseer."""
    max_gib: float = Field(20.0, ge=0, strict=False)
    """Largest size; the least recently used entries are removed first. 0 turns the cache off."""
