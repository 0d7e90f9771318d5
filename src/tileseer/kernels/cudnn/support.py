"""Which plans can run which problems: cuDNN says so; the rule only compares what the plan is written for."""

import pandas as pd

from tileseer.kernels.support_rules import OPERATION, SupportRules

CUDNN_SUPPORT = SupportRules(
    (OPERATION,),
    lambda candidates, wave_size: pd.DataFrame(index=candidates.index),
    lambda dims, variant, element_size: {"G": dims["G"]},
)
