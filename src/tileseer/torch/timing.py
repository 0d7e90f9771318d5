"""The fastest of a few ways to compute one convolution, timed in turns with cold operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tileseer.measure import turns
from tileseer.measure.device import Times

LIMIT_SECONDS = 8e-3
"""For all turns but the first ones."""
HEAD_START_CYCLES = 250_000
"""So long the GPU sleeps for each call that is queued: it lags behind the host, whose time must not count."""
TIE = 0.01
"""A way that is not faster than the first by this share loses to it."""
Clock = Callable[[Sequence[str]], list[float]]
"""The milliseconds of ways, called one after the other by their names."""


def fastest_in_turns(clock: Clock, names: Sequence[str]) -> tuple[str, float]:
    """Return the name of the fastest way, the first on a tie, and its milliseconds.

    Compared are the times within a turn, so that a clock that rises or falls does not count.
    """

    def measure(order: np.ndarray) -> Times:
        latency, unknown = np.array(clock([names[at] for at in order])), np.full(len(order), np.nan)
        return Times(np.full(len(order), turns.OK, np.uint8), latency, unknown, np.ones(len(order), np.int32), unknown)

    compared = turns.compare(measure, len(names), differs=True, seconds=LIMIT_SECONDS, far=math.inf)
    ratios = np.median(compared.logs - compared.logs[:, :1], axis=0)
    best = int(ratios.argmin()) if ratios.min() < math.log1p(-TIE) else 0
    return names[best], float(compared.time_ms[best])


def clock_of_gpu(call: Any, device: torch.device) -> Clock:
    """Return the clock of a call's ways; ``call.run(name)`` queues one on the current stream."""
    # Overwriting as much as the GPU's cache holds leaves nothing of the operands in it, and time to queue what follows.
    size = torch.cuda.get_device_properties(device).L2_cache_size
    cold = torch.empty(size, dtype=torch.uint8, device=device)

    def clock(names: Sequence[str]) -> list[float]:
        torch.cuda._sleep(HEAD_START_CYCLES * len(names))
        events = []
        for name in names:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            cold.zero_()
            start.record()
            call.run(name)
            end.record()
            events.append((start, end))
        events[-1][1].synchronize()
        return [start.elapsed_time(end) for start, end in events]

    return clock
