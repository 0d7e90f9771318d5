"""What the vendor's tool says of a GPU: clocks, power, temperature, throttling, and who else uses it.

The tools run as processes of their own, so that the caller never has a context on the GPU. What a tool does not tell
is ``None``: a missing reading is no zero.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

TOOL_LIMIT_S = 20.0
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons that are faults of the moment: hardware slowdown, thermal (software, hardware), power
brake. The power cap (0x4) is none: it is how a GPU under load runs."""


@dataclass(frozen=True)
class Board:
    """One GPU of this machine; ``environment`` makes it the only one that a process sees."""

    uuid: str
    name: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Reading:
    """State of a GPU at a moment."""

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: str | None = None
    """Why it is slowed down, empty if it is not."""
    foreign: int | None = None
    """Processes of others on it."""


class Telemetry(Protocol):
    """Reads the state of one GPU."""

    def read(self, own: Collection[int]) -> Reading:
        """Return the state now; ``own`` are our processes that may be on the GPU."""
        ...


class NoTelemetry:
    """For a machine without a vendor tool: nothing is known."""

    def read(self, own: Collection[int]) -> Reading:
        """Return a reading without values."""
        return Reading()


class NvidiaSmi:
    """Asks ``nvidia-smi``."""

    _FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def read(self, own: Collection[int]) -> Reading:
        """Return the state now."""
        ask = ["nvidia-smi", f"--id={self._uuid}", "--format=csv,noheader,nounits"]
        # Side by side: each takes as long as dozens of pairs.
        with ThreadPoolExecutor() as pool:
            state, users = pool.map(
                _run, ([*ask, f"--query-gpu={','.join(self._FIELDS)}"], [*ask, "--query-compute-apps=pid"])
            )
        return nvidia_reading(state, users, own)


def nvidia_reading(state: str | None, users: str | None, own: Collection[int]) -> Reading:
    """Read the answers of ``nvidia-smi``: one line of ``NvidiaSmi._FIELDS``, and one process number a line.

    In a container the numbers may be those of the host: one of them is then taken for our worker's.
    """
    values = [field.strip() for field in (state or "").split("\n")[0].split(",")]
    numbers = [_number(value) for value in values[:4]] if len(values) == 5 else [None] * 4
    reasons = _hexadecimal(values[4]) if len(values) == 5 else None
    foreign = None
    if users is not None:
        pids = {int(line) for line in users.split("\n") if line.strip().isdigit()}
        hidden = bool(own) and not pids & set(own)
        foreign = max(0, len(pids - set(own)) - hidden)
    slowed = None if reasons is None else (f"clock event reasons {reasons:#x}" if reasons & SLOWED else "")
    graphics, memory, power, temperature = numbers
    return Reading(graphics, memory, power, temperature, throttled=slowed, foreign=foreign)


class AmdSmi:
    """Asks ``amd-smi``, of which only the JSON's field names are known here: it was never run on a GPU of ours."""

    def __init__(self, number: int) -> None:
        self._number = number

    def read(self, own: Collection[int]) -> Reading:
        """Return the state now."""
        state = _run(["amd-smi", "metric", "--gpu", str(self._number), "--clock", "--power", "--temperature", "--json"])
        users = _run(["amd-smi", "process", "--gpu", str(self._number), "--json"])
        return amd_reading(state, users, own)


def amd_reading(state: str | None, users: str | None, own: Collection[int]) -> Reading:
    """Read the answers of ``amd-smi metric`` and ``amd-smi process``; what is not found stays ``None``."""
    metric = _json(state)
    clocks = _find(metric, "gfx_0")
    found = _json(users)
    pids = None if found is None else {value for value in _all(found, "pid") if isinstance(value, int)}
    return Reading(
        clock_mhz=_value(_find(clocks, "clk")),
        memory_clock_mhz=_value(_find(_find(metric, "mem_0"), "clk")),
        power_w=_value(_find(metric, "socket_power")),
        temperature_c=_value(_find(metric, "hotspot")),
        throttled=_amd_throttle(_find(metric, "throttle_status")),
        foreign=None if pids is None else len(pids - set(own)),
    )


def _amd_throttle(status: object) -> str | None:
    if not isinstance(status, str) or status.upper() == "N/A":
        return None
    return "" if status.upper() in ("UNTHROTTLED", "NOT_THROTTLED") else status.lower()


def boards(backend: str) -> list[Board]:
    """Return the GPUs of this machine that the environment leaves visible; empty without a vendor tool."""
    if backend == "cuda":
        listed = _run(["nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader"])
        rows = [[field.strip() for field in line.split(",", 2)] for line in (listed or "").strip().split("\n")]
        found = [(row[0], row[1], row[2]) for row in rows if len(row) == 3]
        variable = "CUDA_VISIBLE_DEVICES"
    else:
        listed_amd = _json(_run(["amd-smi", "list", "--json"])) or []
        found = [(str(gpu["gpu"]), str(gpu["uuid"]), str(gpu.get("bdf", ""))) for gpu in listed_amd]
        variable = "ROCR_VISIBLE_DEVICES"
    visible = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    chosen = [row for row in found if not visible or row[0] in visible or row[1] in visible]
    # ROCm takes numbers only where the driver has no UUID; NVIDIA takes both.
    return [
        Board(uuid, name, {variable: uuid if backend == "cuda" else number, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        for number, uuid, name in chosen
    ]


def of_board(backend: str, board: Board | None) -> Telemetry:
    """Return the telemetry of a board, or none if there is no tool for it."""
    if board is None:
        return NoTelemetry()
    if backend == "cuda":
        return NvidiaSmi(board.uuid)
    return AmdSmi(int(board.environment["ROCR_VISIBLE_DEVICES"]))


def _run(command: list[str]) -> str | None:
    """Return what a tool prints, or ``None`` if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    return run.stdout if run.returncode == 0 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def _all(content: object, name: str) -> list[Any]:
    """Return every value with a name, at any depth."""
    if isinstance(content, dict):
        inner = [value for part in content.values() for value in _all(part, name)]
        return ([content[name]] if name in content else []) + inner
    return [value for part in content for value in _all(part, name)] if isinstance(content, list) else []


def _find(content: object, name: str) -> Any:
    return next(iter(_all(content, name)), None)


def _value(field: object) -> float | None:
    """Return the number of ``{"value": 3, "unit": "W"}`` or of a bare number."""
    inner = field.get("value") if isinstance(field, dict) else field
    return float(inner) if isinstance(inner, int | float) and not isinstance(inner, bool) else None
