"""What a kernel takes of a compute unit, and of time."""

import numpy as np
import pandas as pd

from tileseer.libraries.costs.timing import KernelTerms
from toy_library.rules import RULES


def estimate(candidates, hardware, coefficients):
    """Registers of the accumulators, and one buffer of LDS."""
    area = candidates["tile_m"] * candidates["tile_n"]
    edges = candidates["tile_m"] + candidates["tile_n"]
    return pd.DataFrame(
        {"vgprs": area / hardware.wave_size, "lds_bytes": edges * 64, "occupancy": np.ones(len(area)), "fault": ""},
        index=candidates.index,
    )


def terms(problems, candidates, variant, hardware, coefficients):
    """A block costs its tile's area."""
    verdicts, classes = RULES.check_classes(problems, candidates, variant, hardware)
    m, n = (candidates[name].to_numpy(float) for name in ("tile_m", "tile_n"))
    one, none = np.ones(len(candidates)), np.zeros(len(candidates))
    columns = {"tile_m": m, "tile_n": n, "tile_k": candidates["tile_k"].to_numpy(), "address_share": one / 2}
    columns |= {"step_latency": 500 + m * n / 8, "step_cost": m * n / 8, "ends_latency": 1000 + m * n}
    columns |= dict.fromkeys(("num_groups_to_merge", "occupancy", "split_k"), one) | {"ends_cost": m * n}
    columns |= dict.fromkeys(("streamk", "two_stage", "split_image"), none)
    ids = (1000 * m + n).astype(np.uint64)
    return KernelTerms(columns, ids, fits=one > 0, verdicts=verdicts, classes=classes)
