"""The kinds of layers: how they are told apart wherever something is decided or said of a group of them.

All functions take the 19 dimensions by name, arrays [P] (of ``columns_of_frame`` with ``ndim`` and ``layout``), and
``evidence_kind`` and ``leaf_kind`` also the symbols of C++.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from tileseer.problems import shapes
from tileseer.problems.problem import LAYOUTS, columns_of_frame

GROUPINGS = ("dense", "depthwise", "grouped")
CHANNELS_OF_FEW = 16
"""A layer of fewer channels, or kernels, has few."""
FLOP_OF_SMALL = 5e7
"""A layer of less useful work is small: a GPU needs less than a microsecond for its arithmetic."""
ELEMENTS_OF_LARGE = 1 << 22
"""A layer whose largest tensor has as many elements is large."""
LEVELS = (
    tuple(f"{group} {ndim}D{layout}" for group in GROUPINGS for layout in ("", " NHWC") for ndim in (2, 3)),
    ("1x1", "3x3", "other filter"),
    ("few channels", "many channels"),
    ("stride 1", "strided"),
    ("small", "large"),
)
"""The words of a leaf of the tree of kinds, one a level: grouping, dimensionality and a layout that is not the first;
filter; the fewer of the channels and kernels of a group; stride or dilation; size. A kind is named by its first words,
``""`` is all."""
LEAVES = tuple("/".join(words) for words in itertools.product(*LEVELS))
"""The names of the leaves, in the order of ``leaf_kind``."""
MARGIN_KINDS = ("dense", "depthwise", "grouped", "few channels", "matrix product")
"""Kinds of problems, each with a margin of its own. The last two are dense: few channels, or an image of one pixel."""


def grouping(dims: Mapping[str, Any]) -> Any:
    """Return the place in ``GROUPINGS``, int [P]: no groups, one channel a group, several."""
    return np.where(dims["G"] == 1, 0, np.where(dims["G"] == dims["C"], 1, 2))


def is_square(dims: Mapping[str, Any], extent: int) -> Any:
    """Return whether the filter is 1x1 or 3x3, bool [P]: ``extent`` high and wide, without depth."""
    return (dims["Z"] == 1) & (dims["Y"] == extent) & (dims["X"] == extent)


def evidence_kind(columns: Mapping[str, Any]) -> Any:
    """Return one number of dimensionality, layout and grouping, int [P]."""
    return (grouping(columns) * 2 + columns["layout"]) * 2 + (columns["ndim"] - 2)


def leaf_kind(columns: Mapping[str, Any]) -> Any:
    """Return the place in ``LEAVES``, int [P]."""
    c = columns
    taps = np.maximum(np.maximum(c["Y"], c["X"]), c["Z"])
    is_3x3 = (c["Y"] == 3) & (c["X"] == 3) & (c["Z"] <= 3)
    steps = [c[f"{name}_{axis}"] for name in ("stride", "dilation") for axis in "dhw"]
    largest_step = steps[0]
    for step in steps[1:]:
        largest_step = np.maximum(largest_step, step)
    inputs, filters, outputs = shapes.tensor_elements(c)
    places = (
        evidence_kind(c),
        np.where(taps == 1, 0, np.where(is_3x3, 1, 2)),
        np.where(np.minimum(c["C"], c["K"]) < CHANNELS_OF_FEW * c["G"], 0, 1),
        np.where(largest_step == 1, 0, 1),
        np.where(np.maximum(np.maximum(inputs, outputs), filters) < ELEMENTS_OF_LARGE, 0, 1),
    )
    leaf = places[0]
    for level, place in zip(LEVELS[1:], places[1:], strict=True):
        leaf = leaf * len(level) + place
    return leaf


def ancestry(name: str) -> Iterator[str]:
    """Yield a kind, the kind that it is a part of, and so on to ``""``, all layers."""
    while name:
        yield name
        name = name.rpartition("/")[0]
    yield ""


def margin_kind(problems: Mapping[str, Any] | pd.DataFrame) -> np.ndarray:
    """Return the place in ``MARGIN_KINDS`` of problems, int [P]."""
    p = {name: np.asarray(problems[name]) for name in ("G", "C", "K", "Di", "Hi", "Wi")}
    one_pixel = np.maximum(np.maximum(p["Di"], p["Hi"]), p["Wi"]) == 1
    dense = np.where(np.minimum(p["C"], p["K"]) < CHANNELS_OF_FEW, 3, np.where(one_pixel, 4, 0))
    group = grouping(p)
    return np.where(group == 0, dense, group)


def layer_kinds(problems: pd.DataFrame) -> np.ndarray:
    """Return the kind of each layer in a word, [P]: the first that fits of NHWC (beside NCHW), depthwise, and so on."""
    p = columns_of_frame(problems)
    group, last = grouping(p), p["layout"] == LAYOUTS.index("NHWC")
    kinds = {
        "NHWC": last & ~last.all(),
        "depthwise": group == GROUPINGS.index("depthwise"),
        "grouped": group == GROUPINGS.index("grouped"),
        "dilated": np.maximum.reduce([p[f"dilation_{axis}"] for axis in "dhw"]) > 1,
        "first layers": p["C"] < CHANNELS_OF_FEW,
        "few outputs": p["K"] < CHANNELS_OF_FEW,
        "small": shapes.useful_flop(p) < FLOP_OF_SMALL,
        "strided": np.maximum.reduce([p[f"stride_{axis}"] for axis in "dhw"]) > 1,
        "1x1": is_square(p, 1),
        "3x3": is_square(p, 3),
    }
    return np.select(list(kinds.values()), list(kinds), default="larger filters")
