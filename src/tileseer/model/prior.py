"""A model of other measurements as a prior: of the simulated device, another arch or another data type.

Few measured rows are too few to learn a device from, but they say where a model of a similar one is wrong. So what is
learnt is the difference between the measured logarithms and the prior's scores; the published model is the sum of both.
With no rows it is the prior, with many it forgets it (``correction``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.gpu.hardware import Hardware
from tileseer.model import booster_text, features, model_files

OFFSET = "offset"
"""Column of a published pool that is added to the trees' prediction."""


@dataclass(frozen=True)
class Prior:
    """A trained model to start from."""

    origin: dict[str, str]
    """Operation, arch, device and device kind that it was trained for; it goes into the manifest."""
    text: str
    feature_set: str
    names: tuple[str, ...]
    offset: dict[str, float]
    """By the candidate's name without its data type."""

    def offsets(self, candidates: pd.DataFrame) -> np.ndarray:
        """Return the prior's offset of each candidate, float64 [Q]; 0 for those it does not know."""
        return np.array([self.offset.get(_typeless(name), 0.0) for name in candidates["candidate"]], np.float64)

    def knows(self, candidates: pd.DataFrame) -> np.ndarray:
        """Return which candidates the prior was trained with, bool [Q]."""
        return np.array([_typeless(name) in self.offset for name in candidates["candidate"]], bool)

    def scores(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem: np.ndarray, candidate: np.ndarray,
        hardware: Hardware, threads: int,
    ) -> np.ndarray:  # fmt: skip
        """Return the prior's scores of n pairs, float64 [n]; ``hardware`` is the device that is asked about."""
        matrix = features.compute(problems, candidates, problem, candidate, hardware, self.feature_set, self.names)
        trees = np.asarray(lightgbm.Booster(model_str=self.text).predict(matrix, num_threads=threads))
        return trees + self.offsets(candidates)[candidate]

    def corrected(self, correction: lightgbm.Booster | None, weight: float = 1.0) -> lightgbm.Booster:
        """Return the sum of the prior's trees, weighted, and those of a correction; one of both is there."""
        texts = [(self.text, weight)] if weight else []
        texts += [(correction.model_to_string(), 1.0)] if correction else []
        return lightgbm.Booster(model_str=booster_text.weighted_sum(texts))


def load(folder: Path, feature_set: str, variant: str) -> Prior:
    """Read a training folder or the folder of a published operation.

    ``UserError`` when it is another direction's or has other features.
    """
    spec: dict[str, Any] = model_files.read_json(folder / model_files.SPEC)
    chosen = features.feature_set(feature_set)
    for field, wanted in (("variant", variant), ("feature_set", feature_set), ("feature_names", list(chosen.names))):
        if spec.get(field) != wanted:
            found = spec.get(field) if field != "feature_names" else "others"
            raise UserError(
                f"{folder / model_files.SPEC}: {field} is {found!r}, but the model to train needs "
                f"{wanted if field != 'feature_names' else 'those of this release'!r}; "
                "give model.prior a model of the same direction and features"
            )
    pool = parquet.read(folder / model_files.CANDIDATES).to_pandas()
    try:
        text = (folder / model_files.MODEL).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{folder / model_files.MODEL}: there is no such file; give a training folder") from error
    return Prior(
        origin={field: spec[field] for field in ("operation", "arch", "device", "device_kind")},
        text=text,
        feature_set=feature_set,
        names=tuple(spec["feature_names"]),
        offset={_typeless(name): float(o) for name, o in zip(pool["candidate"], pool[OFFSET], strict=True)},
    )


def _typeless(candidate: str) -> str:
    """Return a candidate's name without its data type: the same kernel for fp16 and bf16."""
    for dtype in ("fp16", "bf16", "fp32"):
        candidate = candidate.replace(f"_{dtype}_", "_", 1)
    return candidate
