"""The state of a GPU, from its vendor's library: clocks, power, temperature, throttling, processes of others.

The libraries are optional: ``nvidia-ml-py`` (the extra ``gpu``) for NVIDIA, and ``amdsmi``, a part of ROCm, for AMD.
Neither makes a context on the GPU. What a library does not tell is ``None``: a missing reading is no zero.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons that are faults of the moment: hardware slowdown, thermal (software, hardware), power
brake. The power cap (0x4) is none: it is how a GPU under load runs."""
LIBRARIES = {
    "cuda": ("pynvml", "nvidia-ml-py (pip install 'tileseer[gpu]')"),
    "hip": ("amdsmi", "amdsmi (for pip in share/amd_smi of the ROCm install)"),
}
"""Of each backend: the module, and how to get it."""


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


class Telemetry:
    """Reads the state of one GPU. This one knows nothing; it is for machines without a vendor's library."""

    def read(self, own: Collection[int]) -> Reading:
        """State of the GPU now; ``own`` are our processes that may be on it."""
        return Reading()


class NvidiaTelemetry(Telemetry):
    """Asks NVML."""

    def __init__(self, nvml: Any, uuid: str) -> None:
        self._nvml = nvml
        self._gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self, own: Collection[int]) -> Reading:
        """State of the GPU now."""
        nvml = self._nvml
        power, reasons = self._told("PowerUsage"), self._told("CurrentClocksThrottleReasons")
        users = self._told("ComputeRunningProcesses")
        slowed = None if reasons is None else f"clock event reasons {reasons:#x}" if reasons & SLOWED else ""
        return Reading(
            clock_mhz=self._told("ClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._told("ClockInfo", nvml.NVML_CLOCK_MEM),
            power_w=None if power is None else power / 1000,
            temperature_c=self._told("Temperature", nvml.NVML_TEMPERATURE_GPU),
            throttled=slowed,
            foreign=None if users is None else foreign([user.pid for user in users], own),
        )

    def _told(self, what: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{what}")(self._gpu, *arguments)
        except self._nvml.NVMLError:
            return None


class AmdTelemetry(Telemetry):
    """Asks AMD SMI; never run on a GPU of ours."""

    def __init__(self, smi: Any, number: int) -> None:
        self._smi = smi
        self._gpu = smi.amdsmi_get_processor_handles()[number]

    def read(self, own: Collection[int]) -> Reading:
        """State of the GPU now."""
        smi = self._smi
        hotspot = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        users = self._told("gpu_process_list")
        slowed: object = (self._told("gpu_metrics_info") or {}).get("throttle_status")
        return Reading(
            clock_mhz=_number((self._told("clock_info", smi.AmdSmiClkType.GFX) or {}).get("clk")),
            memory_clock_mhz=_number((self._told("clock_info", smi.AmdSmiClkType.MEM) or {}).get("clk")),
            power_w=_number((self._told("power_info") or {}).get("socket_power")),
            temperature_c=_number(self._told("temp_metric", *hotspot)),
            throttled=("throttled" if slowed else "") if isinstance(slowed, bool) else None,
            foreign=None if users is None else len({user["pid"] for user in users} - set(own)),
        )

    def _told(self, what: str, *arguments: Any) -> Any:
        try:
            return getattr(self._smi, f"amdsmi_get_{what}")(self._gpu, *arguments)
        except self._smi.AmdSmiException:
            return None


def foreign(pids: Collection[int], own: Collection[int]) -> int:
    """Number of processes that are not our own.

    In a container the numbers may be those of the host: one of them is then taken for our worker's.
    """
    hidden = bool(own) and not set(pids) & set(own)
    return max(0, len(set(pids) - set(own)) - hidden)


def boards(backend: str) -> list[Board]:
    """The GPUs of this machine that the environment leaves visible; none, and a message, without the library."""
    library = _library(backend)
    if library is None:
        print(
            f"telemetry: {LIBRARIES[backend][1]} or the GPU's driver is missing: throttling shows in the sentinel pair "
            "alone, other processes do not show, and the GPU's lock has the name of its product",
            file=sys.stderr,
        )
        return []
    if backend == "cuda":
        variable = "CUDA_VISIBLE_DEVICES"
        gpus = [library.nvmlDeviceGetHandleByIndex(number) for number in range(library.nvmlDeviceGetCount())]
        found = [(library.nvmlDeviceGetUUID(gpu), library.nvmlDeviceGetName(gpu)) for gpu in gpus]
    else:
        variable = "ROCR_VISIBLE_DEVICES"
        gpus = library.amdsmi_get_processor_handles()
        found = [(library.amdsmi_get_gpu_device_uuid(gpu), library.amdsmi_get_gpu_device_bdf(gpu)) for gpu in gpus]
    visible = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    # ROCm takes numbers only where the driver has no UUID; NVIDIA takes both.
    return [
        Board(uuid, name, {variable: uuid if backend == "cuda" else str(number), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        for number, (uuid, name) in enumerate(found)
        if not visible or str(number) in visible or uuid in visible
    ]


def of_board(backend: str, board: Board | None) -> Telemetry:
    """Telemetry of a board, which knows nothing if there is no board or no library."""
    library = _library(backend) if board else None
    if board is None or library is None:
        return Telemetry()
    if backend == "cuda":
        return NvidiaTelemetry(library, board.uuid)
    return AmdTelemetry(library, int(board.environment["ROCR_VISIBLE_DEVICES"]))


def _library(backend: str) -> Any:
    """The vendor's library, ready to be asked; ``None`` where it or the driver is missing."""
    name = LIBRARIES[backend][0]
    try:
        library = importlib.import_module(name)
    # amdsmi raises a KeyError where ROCm is missing.
    except (ImportError, OSError, KeyError):
        return None
    refused = library.NVMLError if backend == "cuda" else library.AmdSmiException
    try:
        library.nvmlInit() if backend == "cuda" else library.amdsmi_init()
    except refused:
        return None
    return library


def _number(value: object) -> float | None:
    """A number as it is; ``None`` for what stands for none ("N/A")."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
