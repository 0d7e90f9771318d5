"""The GPUs of this machine and their state, from the vendor's library: clocks, power, temperature, throttling, others.

The libraries are optional: ``nvidia-ml-py`` (the extra ``gpu``) for NVIDIA, and ``amdsmi``, a part of ROCm, for AMD.
Neither makes a context on the GPU. What a library does not tell is ``None``: a missing reading is no zero.
"""

import importlib
import os
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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


@dataclass(frozen=True)
class Board:
    """One GPU of this machine. Without a vendor's library nothing is known of it."""

    uuid: str = ""
    name: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Makes it the only one that a process sees."""

    read: Callable[[Collection[int]], Reading] = field(default=lambda own: Reading(), compare=False)
    """State of the GPU now, from those of our processes that may be on it."""


def foreign(pids: Collection[int], own: Collection[int]) -> int:
    """Number of processes that are not our own.

    In a container the numbers may be those of the host: one of them is then taken for our worker's.
    """
    hidden = bool(own) and not set(pids) & set(own)
    return max(0, len(set(pids) - set(own)) - hidden)


def boards(backend: str) -> list[Board]:
    """The GPUs of this machine that the environment leaves visible; none, and a message, without the library."""
    module, how = LIBRARIES[backend]
    try:
        library = importlib.import_module(module)
        found = _nvidia_boards(library) if backend == "cuda" else _amd_boards(library)
    except Exception as error:  # amdsmi raises a KeyError where ROCm is missing, NVML its own error without a driver.
        print(
            f"telemetry: {how} or the GPU's driver is missing ({error}): throttling shows in the sentinel pair alone, "
            "other processes do not show, and the GPU's lock has the name of its product",
            file=sys.stderr,
        )
        return []
    variable = "CUDA_VISIBLE_DEVICES" if backend == "cuda" else "ROCR_VISIBLE_DEVICES"
    visible = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    return [
        board for number, board in enumerate(found) if not visible or str(number) in visible or board.uuid in visible
    ]


def _nvidia_boards(nvml: Any) -> list[Board]:
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    uuids = map(nvml.nvmlDeviceGetUUID, gpus)
    return [
        Board(uuid, nvml.nvmlDeviceGetName(gpu), {"CUDA_VISIBLE_DEVICES": uuid}, partial(_nvidia_reading, nvml, gpu))
        for uuid, gpu in zip(uuids, gpus, strict=True)
    ]


def _nvidia_reading(nvml: Any, gpu: Any, own: Collection[int]) -> Reading:
    def told(what: str, *arguments: Any) -> Any:
        with suppress(nvml.NVMLError):
            return getattr(nvml, f"nvmlDeviceGet{what}")(gpu, *arguments)

    power, reasons, users = told("PowerUsage"), told("CurrentClocksThrottleReasons"), told("ComputeRunningProcesses")
    return Reading(
        clock_mhz=told("ClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock_mhz=told("ClockInfo", nvml.NVML_CLOCK_MEM),
        power_w=None if power is None else power / 1000,
        temperature_c=told("Temperature", nvml.NVML_TEMPERATURE_GPU),
        throttled=None if reasons is None else f"clock event reasons {reasons:#x}" if reasons & SLOWED else "",
        foreign=None if users is None else foreign([user.pid for user in users], own),
    )


def _amd_boards(smi: Any) -> list[Board]:
    smi.amdsmi_init()
    # ROCm takes numbers only where the driver has no UUID.
    return [
        Board(
            smi.amdsmi_get_gpu_device_uuid(gpu), smi.amdsmi_get_gpu_device_bdf(gpu),
            {"ROCR_VISIBLE_DEVICES": str(number)}, partial(_amd_reading, smi, gpu),
        )
        for number, gpu in enumerate(smi.amdsmi_get_processor_handles())
    ]  # fmt: skip


def _amd_reading(smi: Any, gpu: Any, own: Collection[int]) -> Reading:
    """Reading of AMD SMI; never run on a GPU of ours."""

    def told(what: str, *arguments: Any) -> Any:
        with suppress(smi.AmdSmiException):
            return getattr(smi, f"amdsmi_get_{what}")(gpu, *arguments)

    hotspot = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
    users = told("gpu_process_list")
    slowed: object = (told("gpu_metrics_info") or {}).get("throttle_status")
    return Reading(
        clock_mhz=_number((told("clock_info", smi.AmdSmiClkType.GFX) or {}).get("clk")),
        memory_clock_mhz=_number((told("clock_info", smi.AmdSmiClkType.MEM) or {}).get("clk")),
        power_w=_number((told("power_info") or {}).get("socket_power")),
        temperature_c=_number(told("temp_metric", *hotspot)),
        throttled=("throttled" if slowed else "") if isinstance(slowed, bool) else None,
        foreign=None if users is None else foreign([user["pid"] for user in users], own),
    )


def _number(value: object) -> float | None:
    """A number as it is; ``None`` for what stands for none ("N/A")."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
