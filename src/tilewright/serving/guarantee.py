"""Sets of candidates that hold a near-best one with a chosen confidence: split conformal prediction.

For each training problem, a model that has not seen the problem's layer family says how far below its pick the first
candidate stands that is within the tolerance of the best (``gap``). If such gaps of new problems are exchangeable
with those, a set of all candidates within the k-th smallest of n gaps, k = ceil((n + 1) * confidence), holds a
near-best one with at least that confidence. A family counts once, with its largest gap: its members are no
independent evidence. 2D and 3D have gaps of their own where there are enough.

The gaps are those of the cross-validation's models, which are weaker than the published one, so sets are rather too
large. Layers of real networks are not exchangeable with generated problems: the coverage on them is measured and
published beside the promise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from tilewright import efficiency

LEAST = 30
"""Families that a group needs for gaps of its own."""
EVERY = "all"
SHOWN = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Confidences whose coverage is published."""

Gaps = Mapping[str, Sequence[float]]


def calibrate(out_of_fold: pd.DataFrame) -> dict[str, list[float]]:
    """Return the rising gaps of each group: ``2d`` and ``3d`` with at least ``LEAST`` families, and ``all``."""
    family = out_of_fold.groupby(["ndim", "layer_family"], sort=True)["gap"].max().reset_index()
    parts = {f"{ndim}d": part["gap"] for ndim, part in family.groupby("ndim") if len(part) >= LEAST}
    return {name: sorted(float(gap) for gap in part) for name, part in {**parts, EVERY: family["gap"]}.items()}


def threshold(gaps: Gaps, ndim: int, confidence: float) -> float:
    """Return how far below the best score a candidate may stand; infinite where the gaps cannot promise that much."""
    own = gaps.get(f"{ndim}d", gaps[EVERY])
    wanted = math.ceil((len(own) + 1) * confidence)
    return own[wanted - 1] if wanted <= len(own) else math.inf


def coverage(
    gaps: Gaps, ndim: np.ndarray, scores: np.ndarray, achieved: np.ndarray, near: float
) -> list[dict[str, float]]:
    """Return what the sets of n problems achieve, one entry a confidence of ``SHOWN``; shares in percent.

    ``scores`` [n, Q] are -inf where a candidate cannot run, ``achieved`` [n, Q] is the measured efficiency.
    """
    runs = np.isfinite(scores)
    top = np.where(runs.any(axis=1), scores.max(axis=1), 0.0)
    found = []
    for confidence in SHOWN:
        depth = np.array([threshold(gaps, n, confidence) for n in ndim])
        offered = runs & (scores >= (top - depth)[:, None])
        sizes = offered.sum(axis=1)
        found.append(
            {
                "confidence": efficiency.percent(confidence),
                "coverage": efficiency.percent(np.mean((offered & (achieved >= near)).any(axis=1))),
                "mean_set_size": round(float(sizes.mean()), 2),
                "median_set_size": float(np.median(sizes)),
                "largest_set_size": int(sizes.max()),
            }
        )
    return found
