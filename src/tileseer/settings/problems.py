"""Settings of the problems stage: what is trained on and what is held out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tileseer.settings.section import Section, SourcePath


class ProblemsSettings(Section):
    """What is trained on and what it is judged on; layers of one network family are on one side only."""

    networks: SourcePath = "config/problems/layers.csv"
    """Table of the layers of real networks with their splits; the design fills the space of its train split."""
    design: int = Field(700, ge=0)
    """Training problems that fill the space which the networks of the train split span, for each operation."""
    training_layers: int = Field(500, ge=0)
    """Layers of the train split that are trained on, dealt over its network families."""
    training: list[SourcePath] = Field([])
    """Further training problems: generator files (.yaml), tables of layers (.csv) for example of a user."""
    validation: SourcePath = "config/problems/layers.csv"
    """Table of layers that the model is judged on; never trained on."""
    validation_split: Literal["validation", "test"] = "test"
    """The split of that table to judge on; a table without splits is all test."""
    validation_problems: int = Field(800, ge=0)
    """Most problems to judge on, of whole runs of networks; 0 for all."""
    filter: str = Field("")
    """Expression over the fields of a problem; those that it keeps are trained on and judged on, for example
    ``G == 1 and N <= 8``. What is drawn is drawn before. Empty: all."""
    seed: int = Field(20261121, ge=0)
    """Seed of what is drawn."""
    min_validation: int = Field(300, ge=1)
    """Fewer validation problems than this, and the workflow stops."""
