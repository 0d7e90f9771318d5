"""Settings of the cache that workflows and users share. No stage depends on them: they change no result."""

from __future__ import annotations

from pydantic import Field

from tileseer.settings.section import Section


class CacheSettings(Section):
    """Where what was compiled once is kept, outside of ``results``."""

    folder: str | None = None
    """Absolute path of the cache; by default $XDG_CACHE_HOME/tileseer or ~/.cache/tileseer."""
    max_gib: float = Field(20.0, ge=0, strict=False)
    """Bound of its size; what was used longest ago goes first. 0 turns the cache off."""
