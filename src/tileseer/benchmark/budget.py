"""Order of measuring under a budget: the most informative pairs first.

Pairs come in rounds of one pair a problem. A kernel's times on similar problems predict its time on this one. Most
rounds take the most promising candidate that is left, the others a random one, so that no kernel is judged by its
neighbours alone. Problems are similar if their implicit matrix products have similar sizes.
"""

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tileseer.conv.implicit_gemm import implicit_gemm
from tileseer.core.errors import UserError

EXPLORE = 0.25
"""Share of rounds that take random candidates, after the first ones."""
FIRST_ROUNDS = 2
BANDWIDTH = 1.0
"""Distance, in doublings of a size, at which a problem counts about half."""
SIZES = ("gemm_m", "gemm_n", "gemm_k", "gemm_batch")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Read ``90s``, ``30m`` or ``2h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or float(found[1]) <= 0:
        raise UserError(f"budget {text!r}: write a number above 0 with a unit s, m or h, for example 2h")
    return float(found[1]) * UNITS[found[2]]


class Rounds:
    """The pairs of one round after the other among the wanted ones, chosen from the times of the earlier rounds."""

    def __init__(
        self, problems: pd.DataFrame, variant: str, problem: np.ndarray, candidate: np.ndarray, seed: int
    ) -> None:
        """``problem`` and ``candidate`` are rows [n] of the wanted pairs; ``problems`` the table of all problems."""
        self._problems, p = np.unique(problem, return_inverse=True)
        self._candidates, c = np.unique(candidate, return_inverse=True)
        self._open = np.zeros((len(self._problems), len(self._candidates)), bool)
        self._open[p, c] = True
        self._log_ms = np.full(self._open.shape, np.nan)
        self._weights = _weights(problems.iloc[self._problems], variant)
        self._generator = np.random.default_rng(seed)
        self._round = 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (problem rows, candidate rows) of one round after the other, until no pair is left."""
        while self._open.any():
            rows = self._generator.permutation(np.flatnonzero(self._open.any(axis=1)))
            promise = self._promise(rows)
            promise[~self._open[rows]] = np.inf
            columns = promise.argmin(axis=1)
            self._open[rows, columns] = False
            self._round += 1
            yield self._problems[rows], self._candidates[columns]

    def learn(self, problem: np.ndarray, candidate: np.ndarray, latency_ms: np.ndarray) -> None:
        """Take in measured times [n]; NaN for pairs without one."""
        p = np.searchsorted(self._problems, problem)
        c = np.searchsorted(self._candidates, candidate)
        self._log_ms[p, c] = np.log(latency_ms)

    def _promise(self, rows: np.ndarray) -> np.ndarray:
        """Expected slowdown of each pair of the problems ``rows``, [R, Q]: the smallest is the most promising."""
        chance = self._generator.random((len(rows), len(self._candidates)))
        if self._round < FIRST_ROUNDS or self._generator.random() < EXPLORE:
            return chance
        # How much slower than the best of the same problem a kernel was, averaged over similar problems.
        known = ~np.isnan(self._log_ms)
        best = np.where(known.any(axis=1), np.nanmin(np.where(known, self._log_ms, np.inf), axis=1), 0.0)
        behind = np.where(known, self._log_ms - best[:, None], 0.0)
        weights = self._weights[rows]
        # One weak witness for the average kernel, so that a kernel is not judged by a far problem alone.
        prior = behind[known].mean() if known.any() else 0.0
        expected = (weights @ behind + 0.3 * prior) / (weights @ known + 0.3)
        return expected + 1e-6 * chance


def _weights(problems: pd.DataFrame, variant: str) -> np.ndarray:
    """Weight of each problem in the prediction for each other one, [P, P] in (0, 1]."""
    gemm = implicit_gemm(problems, variant)
    sizes = np.log2(gemm[list(SIZES)].to_numpy(float))
    filters = problems[["ndim", "Z", "Y", "X"]].to_numpy()
    same = (filters[:, None] == filters[None]).all(axis=2)
    distance = ((sizes[:, None] - sizes[None]) ** 2).sum(axis=2) + np.where(same, 0.0, 1.0)
    return np.exp(-distance / (2 * BANDWIDTH**2) * 0.7)
