"""A device that writes down when it is used, so that overlapping uses can be found."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.devices.base import Device, Times

VARIABLE = "TILESEER_DEVICE_TRACE"
"""Environment variable that names the file, for tests."""


def traced(device: Device) -> Device:
    """The device, wrapped to log its uses if the environment asks for it."""
    path = os.environ.get(VARIABLE)
    return TracingDevice(device, Path(path)) if path else device


class TracingDevice:
    """Passes everything on to another device; appends ``pid begin_ns end_ns pairs`` of each use to a file."""

    def __init__(self, device: Device, path: Path) -> None:
        self._device = device
        self._path = path
        self.name = device.name
        self.kind = device.kind
        self.largest_batch = device.largest_batch
        self.order_seed = device.order_seed
        path.parent.mkdir(parents=True, exist_ok=True)

    def identity(self) -> str:
        """Return the identity of the device behind: tracing changes no time."""
        return self._device.identity()

    def measure(
        self,
        problems: pd.DataFrame,
        candidates: pd.DataFrame,
        problem_index: np.ndarray,
        candidate_index: np.ndarray,
    ) -> Times:
        """Measure with the device behind and note the use (clock: monotonic, shared by all processes)."""
        begin = time.monotonic_ns()
        times = self._device.measure(problems, candidates, problem_index, candidate_index)
        line = f"{os.getpid()} {begin} {time.monotonic_ns()} {len(problem_index)}\n"
        with self._path.open("a") as trace:
            # One write of a short line to a file opened for appending: lines of two processes do not mix.
            trace.write(line)
        return times
