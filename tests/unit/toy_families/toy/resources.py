"""Registers of the accumulators, and one buffer of LDS."""

import numpy as np
import pandas as pd

FORMULAS = True


def estimate(candidates, hardware, coefficients):
    area = candidates["tile_m"] * candidates["tile_n"]
    edges = candidates["tile_m"] + candidates["tile_n"]
    return pd.DataFrame(
        {"vgprs": area / hardware.wave_size, "lds_bytes": edges * 64, "occupancy": np.ones(len(area)), "fault": ""},
        index=candidates.index,
    )
