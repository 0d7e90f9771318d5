"""Selection with a published model: which supported candidate is fastest for a problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import lightgbm
import numpy as np
import pandas as pd

from tilewright import learn, parquet, problem, publish, support
from tilewright.errors import UserError
from tilewright.hardware import Hardware
from tilewright.problem import Problem
from tilewright.tables import checked


@dataclass(frozen=True)
class Selector:
    """A loaded model of one operation with the pool of candidates that it was published with."""

    operation: str
    arch: str
    device: str
    device_kind: str
    """Where the times came from that the model learnt: ``simulated`` choices are not advice for a real GPU."""
    booster: lightgbm.Booster
    spec: dict[str, Any]
    candidates: pd.DataFrame
    hardware: Hardware

    @classmethod
    def load(cls, models: Path, operation: str) -> Self:
        """Read one operation of a model directory after checking every hash; ``UserError`` on any damage."""
        index = publish.verify(models)
        if operation not in index["operations"]:
            known = ", ".join(index["operations"])
            raise UserError(f"{models}: there is no model of operation {operation!r}; it has {known}")
        folder = models / index["operations"][operation]["folder"]
        spec = publish.read_json(folder / publish.SPEC)
        hardware = publish.read_json(folder / publish.HARDWARE)
        return cls(
            operation=operation,
            arch=index["arch"],
            device=index["device"],
            device_kind=index["device_kind"],
            booster=load_booster(folder / publish.MODEL, spec),
            spec=spec,
            candidates=parquet.read(folder / publish.CANDIDATES).to_pandas(),
            hardware=checked(hardware, Hardware, str(folder / publish.HARDWARE)),
        )

    def rank(self, wanted: Problem, top: int | None = None) -> pd.DataFrame:
        """Return the supported candidates, best first, at most ``top``; empty if none supports the problem.

        Columns: ``rank`` (from 1), ``candidate``, ``kernel``, ``split_k``, ``score`` (space of the target) and, for a
        model of relative efficiency, ``predicted_efficiency`` (percent of the problem's best).
        """
        if f"{wanted.variant}_{wanted.dtype}" != self.operation:
            raise UserError(f"the problem is {wanted.variant}_{wanted.dtype}, but the model is for {self.operation}")
        problems = problem.frame([wanted])
        verdicts = support.check(problems, self.candidates, wanted.variant, wave_size=self.hardware.wave_size)
        pool = self.candidates[verdicts[0] == 0]
        pairs = np.zeros(len(pool), np.int64), np.arange(len(pool))
        score = learn.predict(self.booster, self.spec, problems, pool, *pairs, self.hardware)
        order = np.argsort(-score, kind="stable")[:top]
        ranked = pool.iloc[order][["candidate", "kernel", "split_k"]].reset_index(drop=True)
        ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
        ranked["score"] = score[order]
        if self.spec["target"] == "relative":
            # The regression may score slightly above the best.
            ranked["predicted_efficiency"] = np.minimum(100 * np.exp(score[order]), 100.0)
        return ranked


def load_booster(path: Path, spec: dict[str, Any]) -> lightgbm.Booster:
    """Read a model text whose features must be those of ``spec``; ``UserError`` if it is damaged or another's."""
    try:
        booster = lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is no LightGBM model ({error}); train it again") from error
    if booster.feature_name() != spec["feature_names"]:
        raise UserError(f"{path}: its features are not those of {publish.SPEC} beside it; publish the model again")
    return booster
