"""Settings of the configs stage: which kernels are enumerated and how they are dealt to chunks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tileseer.settings.section import Section, SourcePath


class ConfigsSettings(Section):
    """Which kernels are candidates."""

    rule_set: SourcePath = "config/rule_sets/sweep.yaml"
    """The rule set: tiles, pipelines and options from which the kernels are enumerated."""
    include_flagged: list[str] = Field([])
    """Flags of kernels with a known defect that are built all the same; ``all`` for every flag."""
    filter: str = Field("")
    """Expression over the fields of a kernel; those that it keeps are candidates, for example
    ``tile_m >= 64 and pipeline in (mem, compv3)``. Empty: all."""
    ndims: list[Annotated[int, Field(ge=2, le=3)]] = Field([2, 3], min_length=1)
    """Dimensionalities of the convolutions that one operation covers."""
    chunks: int = Field(4, ge=1, le=4096)
    """Hash buckets an operation: one bucket is one job of each kernel stage. Changing it re-deals all kernels.
    With more than a hundred the graph of jobs costs more than the jobs save."""
