"""Figures of efficiencies in percent with four decimals, and their confidence intervals by bootstrap over problems."""

from collections.abc import Callable

import numpy as np

LEVEL = 95
"""Percent of the resampled figures that an interval holds."""
RESAMPLED_FIGURES = 2000
SEED = 1
_VALUES_AT_A_TIME = 1 << 22
"""Values resampled at a time, which bounds the memory."""

Interval = list[float]


def percent(share: float | np.floating) -> float:
    """Return ``share`` as a percentage with four decimals."""
    return round(100 * float(share), 4)


def intervals(values: np.ndarray) -> dict[str, Interval]:
    """Return [low, high] of mean, median and 10th percentile of efficiencies (0..1), in percent; empty for none.

    ``values`` [n], or [n, repeats]: of several picks for each problem the figures are means over the repeats.
    The percentile bootstrap: the same values in the same order give the same interval.
    """
    if not len(values):
        return {}
    draws = _resampled(
        values.reshape(len(values), -1),
        lambda x: np.stack([x.mean(axis=1), *np.percentile(x, (50, 10), axis=1)], axis=1).mean(axis=2),
    )
    return {name: _interval(draws[:, i]) for i, name in enumerate(("mean", "median", "p10"))}


def interval_of_mean(values: np.ndarray) -> Interval:
    """Return [low, high] of the mean of values, for instance of paired differences (0..1), in percent."""
    return _interval(_resampled(values, lambda x: x.mean(axis=1)))


def share_of_draws(values: np.ndarray, most: np.ndarray) -> float:
    """Return the share (0..1) of the draws in which no column of ``values`` [n, k] has a mean above ``most`` [k]."""
    return float((_resampled(values, lambda x: x.mean(axis=1)) <= most).all(axis=1).mean())


def _resampled(values: np.ndarray, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    draw = np.random.default_rng(SEED)
    rows = max(_VALUES_AT_A_TIME // values.size, 1)
    parts = []
    for first in range(0, RESAMPLED_FIGURES, rows):
        count = min(rows, RESAMPLED_FIGURES - first)
        parts.append(figure(values[draw.integers(len(values), size=(count, len(values)))]))
    return np.concatenate(parts)


def _interval(draws: np.ndarray) -> Interval:
    low, high = np.percentile(draws, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return [percent(low), percent(high)]
