"""Problems near the training ones that nobody measured: the full model says what it thinks of them.

A small model learns from the large one, not from the device, so it may ask about as many problems as it likes. Those of
the training set alone leave it to guess between them.
"""

from __future__ import annotations

import numpy as np

from tileseer.conv.problem import DIMS

BATCH, IMAGE, CHANNELS = 1.5, 0.5, 1.0
"""Octaves by which a draw changes the batch, the image (all its axes alike) and, each by itself, C and K at most."""
UNIT = 8
"""Channels of a group that are a multiple of this stay one: a vector access divides them."""
_AT = {name: position for position, name in enumerate(DIMS)}


def near(dims: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return at most ``count`` convolutions near rows of ``dims`` (int64 [n, 19], columns ``DIMS``), int64 [m, 19].

    Filter, stride, padding, dilation and groups stay. Draws whose filter no longer fits into the image are dropped.
    """
    if not count:
        return dims[:0]
    draw = np.random.default_rng(seed)
    rows = dims[draw.integers(len(dims), size=count)].copy()

    def factor(octaves: float) -> np.ndarray:
        return 2.0 ** draw.uniform(-octaves, octaves, count)

    rows[:, _AT["N"]] = np.maximum(np.rint(rows[:, _AT["N"]] * factor(BATCH)), 1)
    image = factor(IMAGE)
    for name in ("Di", "Hi", "Wi"):
        size = rows[:, _AT[name]]
        rows[:, _AT[name]] = np.where(size > 1, np.maximum(np.rint(size * image), 1), size)
    groups = rows[:, _AT["G"]]
    for name in ("C", "K"):
        own = rows[:, _AT[name]] // groups
        unit = np.where(own % UNIT == 0, UNIT, 1)
        changed = np.maximum(np.rint(own * factor(CHANNELS) / unit), 1).astype(np.int64) * unit
        rows[:, _AT[name]] = groups * np.where(own > 1, changed, own)
    return rows[_fits(rows)]


def _fits(rows: np.ndarray) -> np.ndarray:
    fits = np.ones(len(rows), bool)
    for image, extent, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        reach = rows[:, _AT[f"dilation_{axis}"]] * (rows[:, _AT[extent]] - 1) + 1
        fits &= rows[:, _AT[image]] + 2 * rows[:, _AT[f"pad_{axis}"]] >= reach
    return fits
