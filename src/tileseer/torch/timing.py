"""Times a few ways to compute one convolution in turns, with cold operands."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

LIMIT_SECONDS = 8e-3
"""For all turns but the least number of them."""
LEAST_TURNS, MOST_TURNS = 5, 15
HEAD_START_CYCLES = 1_000_000
"""So long the GPU sleeps before a turn, half a millisecond: it lags behind the host, whose time must not count."""
TIE = 0.01
"""A way that is not faster than the first by this share loses to it."""


def fastest_in_turns(call: Any, names: Sequence[str], device: torch.device) -> str:
    """Return the name of the fastest way, the first on a tie; ``call.run(name)`` queues one on the current stream.

    Compared are the times within a turn, so that a clock that rises or falls does not count.
    """
    clock = _Clock(device)
    begin = time.perf_counter()
    turns: list[list[float]] = []
    while len(turns) < LEAST_TURNS or (len(turns) < MOST_TURNS and time.perf_counter() - begin < LIMIT_SECONDS):
        first = len(turns) % len(names)  # each goes first in its turn, so that no place counts
        times = clock.turn(call, [*names[first:], *names[:first]])
        turns.append([*times[len(names) - first :], *times[: len(names) - first]])
    ratios = [statistics.median(turn[at] / turn[0] for turn in turns) for at in range(len(names))]
    best = min(range(len(names)), key=ratios.__getitem__)
    return names[best] if ratios[best] < 1 - TIE else names[0]


class _Clock:
    def __init__(self, device: torch.device) -> None:
        """Take a buffer of the size of the GPU's cache, which is overwritten before each call."""
        self.device, self.cold = device, None
        if device.type == "cuda":
            size = torch.cuda.get_device_properties(device).L2_cache_size
            self.cold = torch.empty(size, dtype=torch.uint8, device=device)

    def turn(self, call: Any, names: Sequence[str]) -> list[float]:
        """Return the milliseconds of each way, one after the other."""
        if self.cold is None:
            return [self._host_milliseconds(call, name) for name in names]
        torch.cuda._sleep(HEAD_START_CYCLES)
        events = []
        for name in names:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            # Writing the buffer leaves nothing of the operands in the cache, and time to queue what follows.
            self.cold.zero_()
            start.record()
            call.run(name)
            end.record()
            events.append((start, end))
        events[-1][1].synchronize()
        return [start.elapsed_time(end) for start, end in events]

    @staticmethod
    def _host_milliseconds(call: Any, name: str) -> float:
        begin = time.perf_counter()
        call.run(name)
        return 1e3 * (time.perf_counter() - begin)
