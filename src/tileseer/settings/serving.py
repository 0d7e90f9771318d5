"""Settings of the serving stage: the small model that a dispatcher runs, and what is published beside it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from tileseer.settings.section import Section


class ServingSettings(Section):
    """How the model is made small and fast, and how its kernel list and guarantees are found."""

    trees: int = Field(96, ge=1)
    """Trees of the served model."""
    num_leaves: int = Field(63, ge=2, le=256)
    """Leaves of a tree."""
    max_depth: int = Field(8, ge=1, le=16)
    """Depth of a tree: each costs every candidate that many steps."""
    learning_rate: float = Field(0.25, gt=0, le=1, strict=False)
    """Shrinkage of each tree; large, so that the first trees alone give a good short list."""
    imagined: int = Field(800, ge=0)
    """Problems near the training ones that the full model labels for the small one; none of them is measured."""
    floor: float = Field(0.4, gt=0, lt=1, strict=False)
    """Predicted relative efficiencies below this are raised to it before they are learnt."""
    near_best: float = Field(4.0, ge=0, strict=False)
    """Weight of a row: its predicted relative efficiency to this power."""
    level_share: float = Field(1.0, gt=0, le=1, strict=False)
    """How much it counts what the small model misses on all rows of a problem alike (as ``model.level_share``); what
    0.1 does is in docs/decisions/0012."""
    max_rows: int = Field(700_000, ge=1000)
    """Pairs that the small model learns from; of more, a seeded draw is taken."""
    short_lists: list[Annotated[list[int], Field(min_length=2, max_length=2)]] = Field([[8, 32], [24, 8]])
    """Pairs [trees, candidates]: after so many trees only so many candidates with the highest sums go on."""
    pruned_loss: float = Field(0.01, gt=0, lt=1, strict=False)
    """Mean efficiency that the pruned kernel set may lose on the training problems."""
    seed: int = Field(1, ge=0, le=2**31 - 1)
    """Seed of the draw of rows and of the trees."""

    @model_validator(mode="after")
    def _short_lists_shrink(self) -> ServingSettings:
        trees = [entry[0] for entry in self.short_lists]
        kept = [entry[1] for entry in self.short_lists]
        if (
            min([*trees, *kept], default=1) < 1
            or [*trees, self.trees] != sorted({*trees, self.trees})
            or kept != sorted(set(kept), reverse=True)
        ):
            raise ValueError(f"short_lists need rising trees below trees = {self.trees} and falling candidates")
        return self
