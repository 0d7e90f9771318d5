"""Figures of efficiencies, in percent with four decimals."""

import numpy as np

PERCENTILES = tuple(range(0, 101, 2))


def summary(efficiency: np.ndarray) -> dict[str, float]:
    """Mean, median, 10th percentile and minimum of efficiencies, in percent with four decimals."""
    if not len(efficiency):
        return dict.fromkeys(("mean", "median", "p10", "min"), 0.0)
    values = {
        "mean": efficiency.mean(),
        "median": np.median(efficiency),
        "p10": np.percentile(efficiency, 10),
        "min": efficiency.min(),
    }
    return {name: percent(value) for name, value in values.items()}


def percentiles(efficiency: np.ndarray) -> list[float]:
    """``PERCENTILES`` of efficiencies, in percent with four decimals: their distribution."""
    return [percent(value) for value in np.percentile(efficiency, PERCENTILES)]


def percent(share: float | np.floating) -> float:
    """``share`` as a percentage with four decimals."""
    return round(100 * float(share), 4)
