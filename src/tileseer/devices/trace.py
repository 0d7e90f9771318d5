"""A log of when a device is used, in which tests find overlapping uses."""

import os
import time
from pathlib import Path
from typing import Any

from tileseer.devices.base import Device, Times

VARIABLE = "TILESEER_DEVICE_TRACE"
"""Environment variable that names the file."""


def traced(device: Device) -> Device:
    """The device; each use appends ``pid begin_ns end_ns pairs`` to the file that the environment names, if any.

    The clock is monotonic and shared by all processes.
    """
    if VARIABLE not in os.environ:
        return device
    path, measure = Path(os.environ[VARIABLE]), device.measure
    path.parent.mkdir(parents=True, exist_ok=True)

    def noted(*tables: Any) -> Times:
        begin = time.monotonic_ns()
        times = measure(*tables)
        with path.open("a") as trace:
            # One write of a short line to a file opened for appending: lines of two processes do not mix.
            trace.write(f"{os.getpid()} {begin} {time.monotonic_ns()} {len(times.status)}\n")
        return times

    device.measure = noted  # type: ignore[method-assign, assignment]
    return device
