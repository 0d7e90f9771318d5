"""Settings of the support stage."""

from __future__ import annotations

from typing import Literal

from tileseer.settings.section import Section


class SupportSettings(Section):
    """Who says which kernels can run which problems."""

    source: Literal["rules", "library"] = "rules"
    """``rules``: our predicates. ``library``: the compiled library's own host-side checks, which need
    ``compile.toolchain: hipcc`` and no GPU; where the two disagree is listed."""
