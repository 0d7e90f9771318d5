"""A model of other measurements as a prior: of the simulated device, another arch or another data type.

Few measured rows are too few to learn a device from, but they say where a model of a similar one is wrong. So what is
learnt is the difference between the measured logarithms and the prior's scores; the published model is the sum of both.
With no rows it is the prior, with many it forgets it (``correction``).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from tileseer.conv.operation import DTYPES
from tileseer.core.errors import UserError
from tileseer.gpu.hardware import Hardware
from tileseer.model import booster_text, features, model_files
from tileseer.model.model import OFFSET, Model
from tileseer.model.schema import Origin


@dataclass(frozen=True)
class Prior:
    """A trained model to start from."""

    model: Model

    @cached_property
    def origin(self) -> Origin:
        """What the prior was trained for; it goes into the manifest."""
        return Origin.of(self.model.spec)

    @cached_property
    def _offset(self) -> dict[str, float]:
        """Offset of each candidate, by its name without the data type."""
        pool = self.model.pool
        return {_typeless(name): float(o) for name, o in zip(pool["candidate"], pool[OFFSET], strict=True)}

    def offsets(self, candidates: pd.DataFrame) -> np.ndarray:
        """The prior's offset of each candidate, float64 [Q]; 0 for those it does not know."""
        return np.array([self._offset.get(_typeless(name), 0.0) for name in candidates["candidate"]], np.float64)

    def knows(self, candidates: pd.DataFrame) -> np.ndarray:
        """Which candidates the prior was trained with, bool [Q]."""
        return np.array([_typeless(name) in self._offset for name in candidates["candidate"]], bool)

    def on(self, candidates: pd.DataFrame, hardware: Hardware) -> Model:
        """The prior as a model of other candidates on another device."""
        pool = candidates.assign(**{OFFSET: self.offsets(candidates)})
        return replace(self.model, pool=pool, hardware=hardware)

    def scores(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray,
        hardware: Hardware, threads: int,
    ) -> np.ndarray:  # fmt: skip
        """The prior's scores of n pairs, float64 [n]; ``hardware`` is the device that is asked about."""
        return self.on(candidates, hardware).predict(problems, problem, candidate, threads)

    def corrected(self, correction: lightgbm.Booster | None, weight: float = 1.0) -> lightgbm.Booster:
        """The sum of the prior's trees, weighted, and those of a correction; one of both is there."""
        texts = [(self.model.text, weight)] if weight else []
        texts += [(correction.model_to_string(), 1.0)] if correction else []
        return lightgbm.Booster(model_str=booster_text.weighted_sum(texts))


def load(folder: Path, feature_set: str, variant: str) -> Prior:
    """Read a training folder or the folder of a published operation.

    ``UserError`` when it is another direction's or has other features.
    """
    model = Model.read(folder)
    names = list(features.feature_set(feature_set).names)
    for field, wanted in (("variant", variant), ("feature_set", feature_set), ("feature_names", names)):
        found = getattr(model.spec, field)
        if found != wanted:
            shown = (found, wanted) if field != "feature_names" else ("others", "those of this release")
            raise UserError(
                f"{folder / model_files.SPEC}: {field} is {shown[0]!r}, but the model to train needs {shown[1]!r}; "
                "give model.prior a model of the same direction and features"
            )
    return Prior(model)


def _typeless(candidate: str) -> str:
    """A candidate's name without its data type: the same kernel for fp16 and bf16."""
    for dtype in DTYPES:
        candidate = candidate.replace(f"_{dtype}_", "_", 1)
    return candidate
