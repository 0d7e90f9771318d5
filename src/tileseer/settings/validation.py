"""Settings of the validation stage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tileseer.settings.section import Section


class ValidationSettings(Section):
    """How a trained model is validated."""

    network_folds: int = Field(5, ge=0)
    """Parts in which network families are left out in turn, while the others join the training problems; 0: not."""
    learning_shares: list[Annotated[float, Field(gt=0, le=1, strict=False)]] = Field([0.1, 0.3, 1.0])
    """Shares of the training problems of which models are trained for the learning curve; empty: none."""
    reference_trainer: bool = False
    """Train the reference's model (97 features, log1p(TFLOPS), 2000 trees of 255 leaves) on the same rows and show it
    beside ours. It takes several times as long as ours."""
    reference_trees: int = Field(2000, ge=1)
    """Trees of that model; with fewer it is not the reference's."""
