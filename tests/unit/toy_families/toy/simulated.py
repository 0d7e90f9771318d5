"""A block costs its tile's area."""

import numpy as np

from tileseer.families.simulation import KernelTerms
from tileseer.families.support_rules import check_classes
from toy_families.toy import support

SOURCES = ()


def terms(problems, candidates, variant, hardware, coefficients):
    verdicts, classes = check_classes(support, problems, candidates, variant, hardware.wave_size)
    m, n = (candidates[name].to_numpy(float) for name in ("tile_m", "tile_n"))
    one, none = np.ones(len(candidates)), np.zeros(len(candidates))
    return KernelTerms(
        columns={
            "tile_m": m, "tile_n": n, "tile_k": candidates["tile_k"].to_numpy(), "num_groups_to_merge": one,
            "occupancy": one, "step_latency": 500 + m * n / 8, "step_cost": m * n / 8, "ends_latency": 1000 + m * n,
            "ends_cost": m * n, "address_share": one / 2, "split_k": one, "streamk": none, "two_stage": none,
            "split_image": none,
        },
        ids=(1000 * m + n).astype(np.uint64),
        shape=np.log2(np.stack([m, n])),
        fits=one > 0,
        verdicts=verdicts,
        classes=classes,
    )  # fmt: skip
