"""Compare few candidates of one problem: timed in turns, there and back (A B C, C B A), until the comparison is sure.

A drift of the device then costs all of them the same. One careless timing of each would choose a slower candidate more
often than the prediction does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tileseer.measure import receipt
from tileseer.measure.device import STATUSES, Times

NOISE = 0.01
"""Relative standard error of a comparison at which timing ends."""
TURNS = 2
"""Times there and back between two looks at the noise."""
MOST = 33
"""Rounds of a comparison, about."""
BUSY = 3
"""Rounds during which the device was throttled or contended, after which a problem is left for later."""
FAR = 1.2
LONGEST_COMPARISON_SECONDS = 5.0
OK = STATUSES.index("ok")
PASSING_STATUS_NUMBERS = tuple(STATUSES.index(status) for status in receipt.PASSING)


@dataclass(frozen=True)
class Comparison:
    """The times of k candidates of one problem."""

    time_ms: np.ndarray
    """float64 [k], geometric mean of the rounds; NaN where a candidate did not run."""
    logs: np.ndarray
    """float64 [rounds, k], ln(ms) of each; NaN where it was not timed."""
    noise: float
    """Relative standard error of the quotient of two of them."""

    @property
    def rounds(self) -> int:
        """How often they were timed; 0: the device was throttled or shared all the time."""
        return len(self.logs)


def compare(
    measure: Callable[[np.ndarray], Times],
    count: int,
    differs: bool,
    seconds: float = LONGEST_COMPARISON_SECONDS,
    far: float = FAR,
) -> Comparison:
    """Time ``count`` candidates; ``measure`` times those whose numbers (int [n]) it gets, in their order.

    ``differs``: the device's times differ from run to run, as those of a GPU do; else one round says everything.
    ``seconds``: longest comparison; the rounds that are under way are finished. ``far``: a candidate that is so many
    times slower than the best of the first round is timed once.
    """
    begin, busy = time.monotonic(), 0
    running, failed = np.arange(count), np.zeros(count, bool)
    logs = np.full((0, count), np.nan)
    while len(running) and busy < BUSY:
        # The first round shows what runs. A device may do something of its own between two calls.
        order = np.tile(np.concatenate([running, running[::-1]]), TURNS) if len(logs) else running
        times = measure(order)
        if np.isin(times.status, PASSING_STATUS_NUMBERS).any():
            busy += 1
            continue
        ok, rounds = times.status == OK, np.full((len(order) // len(running), count), np.nan)
        failed[order[~ok]] = True
        at = np.arange(len(order)) // len(running)
        rounds[at[ok], order[ok]] = np.log(times.latency_ms[ok])
        logs = np.vstack([logs, rounds])
        if not differs:
            return Comparison(np.exp(logs[0]), logs, _noise_within(times))
        running = running[~failed[running]]
        if len(logs) == 1 and len(running):
            running = running[logs[0, running] <= logs[0, running].min() + math.log(far)]
        is_late = len(logs) >= MOST or time.monotonic() - begin > seconds
        if len(running) < 2 or (len(logs) > 1 and (is_late or _noise(logs[:, running]) < NOISE)):
            break
    mean = np.full(count, np.nan)
    ran = np.isfinite(logs).any(axis=0) & ~failed
    mean[ran] = np.nanmean(logs[:, ran], axis=0)
    return Comparison(np.exp(mean), logs, _noise(logs[:, running]))


def _noise(logs: np.ndarray) -> float:
    """Return the relative standard error of the difference of two columns of ln(time) [rounds, k]."""
    rounds, count = logs.shape
    if count < 2:
        return 0.0
    if rounds < 2:
        return math.inf
    rest = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    return math.sqrt(2 * float((rest**2).sum()) / ((rounds - 1) * (count - 1)) / rounds)


def _noise_within(times: Times) -> float:
    """Return the relative standard error of a difference of times, from the samples of single measurements."""
    ok = (times.status == OK) & np.isfinite(times.latency_cv)
    errors = times.latency_cv[ok] / np.sqrt(np.maximum(times.samples[ok], 1))
    return math.sqrt(2 * float(np.mean(errors**2))) if len(errors) else 0.0
