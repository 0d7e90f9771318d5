"""Which rows of a problem are learnt from: the fastest always, others by a draw that depends on the problem only."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


def kept(
    problem: np.ndarray, efficiency: np.ndarray, keys: np.ndarray, per_problem: int, fastest: int, seed: int
) -> np.ndarray:
    """Return which rows a problem keeps, bool [n]: ``per_problem`` of them (0: all), the ``fastest`` first.

    Rows are sorted by ``problem``; ``efficiency`` is 0 where a pair did not run; ``keys`` is the key of each problem.
    """
    if not per_problem:
        return np.ones(len(problem), bool)
    keep = np.zeros(len(problem), bool)
    bounds = np.flatnonzero(np.diff(problem, prepend=-1, append=np.iinfo(np.int32).max))
    for start, stop in pairwise(bounds):
        priority = np.random.default_rng([seed, int(keys[problem[start]], 16)]).random(stop - start)
        priority[np.argsort(-efficiency[start:stop], kind="stable")[:fastest]] = -1.0
        keep[start + np.argsort(priority, kind="stable")[:per_problem]] = True
    return keep
