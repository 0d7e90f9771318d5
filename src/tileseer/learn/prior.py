"""What training starts from: the cost model's formula, or a model of another device, arch or data type.

Few measured rows are too few to learn a device from, but they say where a formula or a model of a similar one is wrong.
So trees learn what the prior misses, and the published model has both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np

from tileseer.config.model import TrainingParameters
from tileseer.core.errors import UserError
from tileseer.costmodel.coefficients import Coefficients
from tileseer.costmodel.formula import Formula, FormulaPrior
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.hardware import Hardware
from tileseer.learn import model_files
from tileseer.learn.features.features import feature_set
from tileseer.learn.model import Model


@dataclass(frozen=True, eq=False)
class Prior:
    """A model's trees, or the formula's coefficients."""

    model: Model | None = None
    coefficients: Coefficients | None = None
    weight: float | None = None
    """What the formula's scores are multiplied by; None: as the measured rows say."""

    @classmethod
    def of(cls, settings: TrainingParameters, operation: str, coefficients: Coefficients | None) -> Prior | None:
        """The prior that ``settings`` name; ``coefficients`` are those of the formula."""
        if settings.prior == "formula":
            return cls(coefficients=coefficients)
        if settings.prior_folder is None:
            return None
        return cls(read_prior(settings.prior_folder, settings.features, operation.rpartition("_")[0]))

    @classmethod
    def of_formula(cls, formula: FormulaPrior | None) -> Prior | None:
        """The formula that a model starts from, with its weight."""
        return None if formula is None else cls(coefficients=formula.coefficients, weight=formula.weight)

    def scores(self, pairs: Dataset, matrix: np.ndarray, gpu: Hardware, threads: int) -> np.ndarray:
        """Scores of n pairs with the features ``matrix`` [n, F], float64 [n]; of a formula -ln(its microseconds)."""
        if self.model is not None:
            booster: lightgbm.Booster = self.model.booster
            return np.asarray(booster.predict(matrix, num_threads=threads))
        assert self.coefficients is not None
        formula = Formula(
            pairs.problems, pairs.candidates, gpu, FormulaPrior(weight=1.0, coefficients=self.coefficients)
        )
        return formula.log_speed(pairs.problem, pairs.candidate)


def read_prior(folder: Path, features: str, variant: str) -> Model:
    """Read a training folder or the folder of a published operation.

    ``UserError`` when it is another direction's, has other features, or starts from a formula.
    """
    model = Model.read(folder)
    names = list(feature_set(features).names)
    for field, expected in (("variant", variant), ("feature_set", features), ("feature_names", names)):
        value = getattr(model.spec, field)
        if value != expected:
            shown = (value, expected) if field != "feature_names" else ("others", "those of this release")
            raise UserError(
                f"{folder / model_files.SPEC}: {field} is {shown[0]!r}, but the model to train needs {shown[1]!r}; "
                "give model.prior a model of the same direction and features"
            )
    if model.spec.formula is not None:
        raise UserError(f"{folder}: the model starts from a formula; give model.prior one without: model.prior none")
    return model
