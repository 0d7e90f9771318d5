"""Settings of the compile stage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tileseer.settings.section import Section

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^[/~].*$")]


class CkSettings(Section):
    """The Composable Kernel tree that kernels are written for and compiled against."""

    root: AbsolutePath | None = None
    """Top folder of the tree; by default that of the ROCm install, or what ``make toolchain`` brought."""
    api: Literal["auto", "2026.06", "2025.11"] = "auto"
    """Level of its API; ``auto`` looks at the tree, and is 2026.06 where nothing is compiled and no root is set."""


class CutlassSettings(Section):
    """The CUTLASS tree that kernels of NVIDIA GPUs are compiled against."""

    root: AbsolutePath | None = None
    """Top folder of the tree; by default $CUTLASS_PATH, that of PyPI's nvidia-cutlass, or what ``make cuda-toolchain``
    brought."""


class LimitSettings(Section):
    """Built kernels beyond these are pruned: not measured, kept with the reason."""

    max_vgpr_spills: int | None = Field(128, ge=0)
    """Vector registers that do not fit and go through memory; null for no limit."""
    max_scratch_bytes: int | None = Field(None, ge=0)
    """Private memory a lane; null for no limit."""
    min_occupancy: float = Field(1.0, ge=0, strict=False)
    """Blocks resident on one compute unit."""


class CompileSettings(Section):
    """How headers become kernels."""

    toolchain: Literal["none", "hipcc", "nvcc"] = "none"
    """``none`` compiles nothing and estimates each kernel's registers, LDS and occupancy. ``hipcc`` is for archs of AMD
    (gfx...), ``nvcc`` for those of NVIDIA (sm_...)."""
    compiler: AbsolutePath | None = None
    """The compiler; by default that of the ROCm or CUDA install, of PATH, of a PyPI package, or what ``make toolchain``
    or ``make cuda-toolchain`` brought."""
    batch: int = Field(10, ge=1, le=50)
    """Kernels of one compiler run; their common templates are instantiated once."""
    timeout_seconds: int = Field(300, ge=1)
    """Wall-clock time for each kernel of a run."""
    memory_mib: int = Field(3072, ge=256)
    """Address space of one compiler run; also what a job declares, so that jobs together never swap."""
    limits: LimitSettings = LimitSettings()
