"""Which plans can run which problems: cuDNN says so, so that only what the plan is written for is asked here."""

import numpy as np
import pandas as pd

from tileseer.families.support_rules import OPERATION, Columns, Rule, distinct, signatures

RULES: tuple[Rule, ...] = (OPERATION,)


def kernel_classes(candidates: pd.DataFrame, wave_size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of one plan a class, [1, classes] each, and the class of each candidate."""
    return distinct(pd.DataFrame({"signature": signatures(candidates)}, index=candidates.index))


def problem_columns(dims: Columns, variant: str, element_size: np.ndarray | float) -> dict[str, np.ndarray]:
    """What the rule reads of P problems beside their signature: what says how many there are."""
    return {"G": dims["G"]}
