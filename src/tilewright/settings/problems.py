"""Settings of the problems stage: what is trained on and what is held out."""

from __future__ import annotations

from pydantic import Field

from tilewright.settings.section import Section, SourcePath


class ProblemsSettings(Section):
    """Training problems come from generators, validation problems from real networks."""

    training: list[SourcePath] = Field(["config/problems/training.yaml"], min_length=1)
    """Generator files; their problems form the training set."""
    validation: SourcePath = "config/problems/networks.csv"
    """Table of real layers (network, layer, 19 dimensions); never trained on."""
    seed: int = Field(20261121, ge=0)
    """Seed of the sampled generator sections."""
    min_validation: int = Field(300, ge=1)
    """Fewer validation problems than this, and the workflow stops."""
