"""The order of measuring on a device whose state changes with time."""

from __future__ import annotations

import numpy as np


def interleaved(problem: np.ndarray, candidate: np.ndarray, seed: int) -> np.ndarray:
    """Return the positions of n pairs in random order: the problems, and within each problem its candidates.

    The candidates of a problem follow each other, because they are compared with each other: what drifts in between
    is small, and the operands are generated once. ``problem`` and ``candidate`` are int [n]; same seed, same order.
    """
    generator = np.random.default_rng(seed)
    pairs = np.lexsort((candidate, problem))
    problems, first = np.unique(problem[pairs], return_index=True)
    groups = np.split(pairs, first[1:]) if len(problems) else []
    order = [generator.permutation(groups[number]) for number in generator.permutation(len(groups))]
    return np.concatenate(order) if order else pairs
