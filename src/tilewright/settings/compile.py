"""Settings of the compile stage."""

from __future__ import annotations

from typing import Literal

from tilewright.settings.section import Section


class CompileSettings(Section):
    """How headers become kernels."""

    toolchain: Literal["none"] = "none"
    """``none`` compiles nothing and estimates each kernel's registers, LDS and occupancy."""
