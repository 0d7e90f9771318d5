"""Many problems at once: which rows of dimensions are no convolution, and tables as columns of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tileseer.problems.problem import DIMS, INT32_MAX, LAYOUTS, counted

if TYPE_CHECKING:
    import pandas as pd


def _from_to(first: str, last: str) -> slice:
    return slice(DIMS.index(first), DIMS.index(last) + 1)


_LEAST = np.array([0 if name.startswith("pad") else 1 for name in DIMS])
_GROUPS, _CHANNELS = _from_to("G", "G"), _from_to("C", "K")
_AXIS_COLUMNS = [
    _from_to(f"{first}{depth}", f"{first}{width}")
    for first, depth, width in (("", "Di", "Wi"), ("", "Z", "X"), ("pad_", "d", "w"), ("dilation_", "d", "w"))
]
"""Slices, which are views: of one problem an array of positions takes ten times as long."""


def wrong_rows(values: np.ndarray) -> np.ndarray:
    """Return the rows that ``Problem`` refuses, bool [n]; ``values`` are integers [n, 19] in the order of ``DIMS``."""
    wrong = ((values < _LEAST) | (values > INT32_MAX)).any(axis=1)
    wide = values.astype(np.int64)
    wrong |= (wide[:, _CHANNELS] % np.maximum(wide[:, _GROUPS], 1) != 0).any(axis=1)
    image, extent, padding, dilation = (wide[:, axes] for axes in _AXIS_COLUMNS)
    wrong |= (image + 2 * padding - dilation * (extent - 1) - 1 < 0).any(axis=1)
    if not wrong.any():
        # Products of floats do not overflow; those of one problem are quicker as Python's integers.
        columns = wide[0].tolist() if len(wide) == 1 else wide.T.astype(np.float64)
        for count in counted(dict(zip(DIMS, columns, strict=True))).values():
            wrong |= count > INT32_MAX
    return wrong


def columns_of_frame(problems: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return what features and rules read of P problems, int64 [P] each: ``ndim``, the dimensions, and ``layout``.

    The layout is its place in ``LAYOUTS``, 0 also where the table has none.
    """
    names = ("ndim", *DIMS)
    # At once: of one problem, pandas takes longer for each column than all that follows.
    columns = dict(zip(names, np.ascontiguousarray(problems[[*names]].to_numpy(np.int64).T), strict=True))
    last = problems["layout"].to_numpy(object) == LAYOUTS[1] if "layout" in problems else np.zeros(len(problems))
    return columns | {"layout": last.astype(np.int64)}
