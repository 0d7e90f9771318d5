"""Settings of the model stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from tileseer.core.strict_tables import expected
from tileseer.facts.section import RelativePath, Section

FeatureSet = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_]*$"), expected("the name of a feature set, such as tileseer")
]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Learner = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$"), expected("the name of a learner, such as trees")]


class ModelSettings(Section):
    """How one operation's ranking model is trained."""

    features: FeatureSet = "tileseer"
    """Feature set of docs/generated/features.md: ours (of the library whose kernels are ranked; ``compiled`` where a
    compiler described their code), or ``reference``, the 97 features of Composable Kernel's predictor, which can then
    load the model."""
    prior: RelativePath = "auto"
    """What training starts from; its trees learn the difference. ``formula``: the simulated device's formula for this
    GPU. ``none``: nothing. ``auto``: the formula for measured and recorded times if one exists. Otherwise the folder of
    a trained model of the same direction and features (another arch, data type or device kind)."""
    learner: Learner = "trees"
    """Name of an installed learner, an entry point of the group ``tileseer.learners``."""
    rows_per_problem: int = Field(64, ge=0)
    """Training rows kept of each problem, 0 for all: the fastest are half of them, the seed draws the rest."""
    n_estimators: int = Field(600, ge=1)
    """Trees of the published model."""
    cv_estimators: int = Field(100, ge=1)
    """Trees of the models of cross-validation, by which a library's own choice is kept."""
    num_leaves: int = Field(63, ge=2)
    """Most leaves of a tree. Few rows: a leaf for 400 of them, but at least 15."""
    learning_rate: float = Field(0.1, gt=0, le=1, strict=False)
    """Shrinkage of each tree."""
    min_child_samples: int = Field(20, ge=1)
    """Fewest rows in a leaf; where a problem has a handful of solvers alone, 5 of them are enough."""
    feature_fraction: float = Field(0.5, gt=0, le=1, strict=False)
    """Share of the features that a tree may use."""
    folds: int = Field(3, ge=2)
    """Folds of the cross-validation."""
    seed: Seed = 1
    """Seed of row sampling, folds and trees."""

    @property
    def small(self) -> ModelSettings:
        """The settings of the models of cross-validation."""
        return self.model_copy(update={"n_estimators": self.cv_estimators})

    @property
    def prior_folder(self) -> Path | None:
        """The folder of the model to start from."""
        return None if self.prior in ("auto", "formula", "none") else Path(self.prior)

    @property
    def prior_files(self) -> list[str]:
        """The files of that model; none without it."""
        folder, names = self.prior_folder, ("model_tflops.lgbm", "feature_spec.json", "candidates.parquet", "cuts.json")
        return [(folder / name).as_posix() for name in names] if folder else []
