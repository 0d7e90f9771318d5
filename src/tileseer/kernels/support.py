"""Which kernels can run which problems, by the rules of their family."""

import numpy as np
import pandas as pd

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.ck_tile.support import CK_TILE_SUPPORT
from tileseer.kernels.cutlass.rules import CUTLASS_SUPPORT
from tileseer.kernels.miopen.support import MIOPEN_SUPPORT
from tileseer.kernels.registry import family_of_kernels
from tileseer.kernels.rules import OPERATION, SupportRules

CUDNN_SUPPORT = SupportRules(
    (OPERATION,),
    lambda candidates, wave_size: pd.DataFrame(index=candidates.index),
    lambda dims, variant, element_size: {"G": dims["G"]},
)
"""cuDNN itself says which plans can run a problem; the rule only compares what a plan is written for."""
SUPPORT: dict[str, SupportRules] = {
    "ck_tile": CK_TILE_SUPPORT,
    "cutlass": CUTLASS_SUPPORT,
    "miopen": MIOPEN_SUPPORT,
    "cudnn": CUDNN_SUPPORT,
}


def check_support(
    problems: pd.DataFrame, candidates: pd.DataFrame, variant: str, hardware: Hardware | None = None
) -> np.ndarray:
    """Verdict of each of P problems with each of Q candidates (kernel, its fields, split_k), uint8 [P, Q].

    0 is supported, else 1 + the index of the first rule of the family's that fails. Without ``hardware``, waves have
    64 lanes.
    """
    if candidates.empty:
        return np.zeros((len(problems), 0), np.uint8)
    rules = SUPPORT[family_of_kernels(candidates["kernel"].tolist()).name]
    verdicts, classes = rules.check_classes(problems, candidates, variant, hardware)
    return np.take(verdicts, classes, axis=1)
