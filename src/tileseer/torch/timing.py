"""Times a few plans of one shape in turns, with cold operands and a warm clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

WARM_SECONDS, LIMIT_SECONDS = 4e-3, 24e-3
"""For the clock to rise, and for all of it, but for the turn that is under way."""
MOST_TURNS = 15


def fastest_in_turns(shape: Any, names: Sequence[str], operands: Sequence[torch.Tensor]) -> tuple[str, float]:
    """The plan with the least median time, and that time in milliseconds.

    The result of the direction is written into its operand, which the caller computes anew.
    """
    device = operands[0].device
    cold = torch.empty(2 * torch.cuda.get_device_properties(device).L2_cache_size, dtype=torch.uint8, device=device)
    stream = torch.cuda.current_stream(device)
    for name in names:  # the first launch of a plan loads its code
        shape.launch(name, *operands)
    stream.synchronize()
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_SECONDS:
        for name in names:
            shape.launch(name, *operands)
        stream.synchronize()
    events: list[list[tuple[Any, Any]]] = []
    while not events or (len(events) < MOST_TURNS and time.perf_counter() - begin < LIMIT_SECONDS):
        events.append([_timed(shape, name, operands, cold, stream) for name in names])
        stream.synchronize()
    medians = [
        statistics.median(start.elapsed_time(end) for start, end in column) for column in zip(*events, strict=True)
    ]
    best = min(range(len(names)), key=medians.__getitem__)
    return names[best], medians[best]


def _timed(shape: Any, name: str, operands: Sequence[torch.Tensor], cold: torch.Tensor, stream: Any) -> tuple[Any, Any]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # Writing the buffer leaves nothing of the operands in the cache, and time to queue what follows.
    cold.zero_()
    start.record(stream)
    shape.launch(name, *operands)
    end.record(stream)
    return start, end
