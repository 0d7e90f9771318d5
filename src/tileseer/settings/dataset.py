"""Settings of the dataset stage."""

from __future__ import annotations

from pydantic import Field

from tileseer.settings.section import Section


class DatasetSettings(Section):
    """How the dataset is put together. It changes no result."""

    memory_mib: int = Field(1024, ge=768)
    """Memory of the stage, whatever the number of measurements and the size of chunks; the rest waits on the disk.
    Most of the least value is for a row group of a million rows."""
