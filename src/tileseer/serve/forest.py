"""The trees of a model as tables of bits, which NumPy walks down for many candidates at once.

A split that sends a candidate right rules out the leaves on its left. For each feature and each interval between its
thresholds, one number a tree says which leaves that feature leaves over. A walk ends at the first leaf that all
features leave over (QuickScorer, with a row of a table in the place of its lists).
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tileseer.serve.program import Value

BITS = 64
"""Most leaves of a tree: one bit each."""
BLOCK = 1 << 17
"""Numbers that are gathered at a time: 1 MiB stays in the second-level cache."""


class TreeTable:
    """Consecutive trees, and how far to add them up."""

    def __init__(self, table: np.ndarray, leaves: np.ndarray, ends: Sequence[int]) -> None:
        """``table`` uint64 [rows, trees], ``leaves`` float64 [trees, BITS]; ``ends``: trees after which a sum ends."""
        self._table = np.ascontiguousarray(table)
        self._leaves = leaves.ravel()
        self._first = np.arange(len(leaves)) * leaves.shape[1]
        self._begins = np.array([0, *ends[:-1]])

    def left_over(self, rows: np.ndarray) -> np.ndarray:
        """The leaves that the features of n candidates leave over, uint64 [n, trees]; ``rows`` int [features, n]."""
        step = max(1, BLOCK // max(1, len(rows) * len(self._first)))
        parts = [
            np.bitwise_and.reduce(self._table.take(rows[:, start : start + step], axis=0), axis=0)
            for start in range(0, rows.shape[1], step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def sums(self, left_over: np.ndarray) -> np.ndarray:
        """What the trees add from one end to the next, float64 [n, ends]."""
        first = left_over & -left_over
        leaf = np.bitwise_count(first - np.uint64(1)) + self._first
        return np.add.reduceat(self._leaves.take(leaf), self._begins, axis=1)


class Forest:
    """All trees of a model."""

    def __init__(self, thresholds: Sequence[np.ndarray]) -> None:
        """``thresholds``: those of each feature that a tree reads, rising."""
        self._thresholds = thresholds
        self._lists = [values.tolist() for values in thresholds]
        self._begins = np.cumsum([0, *(len(values) + 1 for values in thresholds)])

    def rows(self, features: Sequence[int], values: Sequence[Value], count: int) -> np.ndarray:
        """Rows of the tables that belong to values of features, int [features, count]: arrays, or numbers of one."""
        # A value is sent right by the thresholds below it. For one value a list is much quicker.
        parts = [
            self._thresholds[feature].searchsorted(value) if value.ndim else bisect_left(self._lists[feature], value)
            for feature, value in zip(features, values, strict=True)
        ]
        begins = self._begins.take(features)[:, None]
        return np.array(parts, np.intp).reshape(len(features), count) + begins

    def trees(
        self, nodes: Sequence[np.ndarray], leaves: np.ndarray, ends: Sequence[int], parts: Sequence[int]
    ) -> tuple[TreeTable, ...]:
        """The trees, cut into parts.

        ``nodes``: tree, first row that is sent right, and first and last + 1 of the leaves on the left, int [nodes]
        each. ``leaves`` float64 [trees, BITS]. ``ends``: trees after which sums end, the last being their
        number; ``parts``: those of them after which a part ends.
        """
        tree, row, begin, end = (values.astype(np.int64) for values in nodes)
        table = np.full((self._begins[-1], len(leaves)), ~np.uint64(0))
        left = ((np.uint64(1) << (end - begin).astype(np.uint64)) - np.uint64(1)) << begin.astype(np.uint64)
        np.bitwise_and.at(table, (row, tree), ~left)
        for first, last in pairwise(self._begins):
            np.bitwise_and.accumulate(table[first:last], axis=0, out=table[first:last])
        return tuple(
            TreeTable(table[:, first:last], leaves[first:last], [stop - first for stop in ends if first < stop <= last])
            for first, last in pairwise([0, *parts])
        )
