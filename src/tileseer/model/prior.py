"""A model of other measurements as a start: of the simulated device, another arch or another data type.

Few measured rows are too few to learn a device from, but they say where a model of a similar one is wrong. So trees
learn what its trees miss, and the published model has both.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.conv.operation import DTYPES
from tileseer.core.errors import UserError
from tileseer.gpu.hardware import Hardware
from tileseer.model import features, model_files
from tileseer.model.model import Model


def load(folder: Path, feature_set: str, variant: str) -> Model:
    """Read a training folder or the folder of a published operation.

    ``UserError`` when it is another direction's, has other features, or starts from a formula.
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
    if model.spec.formula is not None:
        raise UserError(f"{folder}: the model starts from a formula; give model.prior one without: model.prior none")
    return model


def knows(prior: Model, candidates: pd.DataFrame) -> np.ndarray:
    """Which candidates the prior was trained with, in any data type, bool [Q]."""
    names = {_typeless(name) for name in prior.pool["candidate"]}
    return np.array([_typeless(name) in names for name in candidates["candidate"]], bool)


def on(prior: Model, candidates: pd.DataFrame, hardware: Hardware) -> Model:
    """The prior as a model of other candidates on another device."""
    return replace(prior, pool=candidates, hardware=hardware)


def _typeless(candidate: str) -> str:
    """A candidate's name without its data type: the same kernel for fp16 and bf16."""
    for dtype in DTYPES:
        candidate = candidate.replace(f"_{dtype}_", "_", 1)
    return candidate
