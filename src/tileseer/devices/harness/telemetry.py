"""The GPUs of this machine and their state, from the vendor's library: clocks, power, temperature, throttling, others.

The libraries are optional: ``nvidia-ml-py`` (the extra ``gpu``) for NVIDIA, and ``amdsmi``, a part of ROCm, for AMD.
Neither makes a context on the GPU. What a library does not tell is ``None``: a missing reading is no zero.
"""

import importlib
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
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

    def read(self, own: Collection[int]) -> Reading:
        """State of the GPU now; ``own`` are our processes that may be on it."""
        return Reading()


@dataclass(frozen=True)
class NvidiaBoard(Board):
    """A GPU that NVML knows."""

    nvml: Any = None
    handle: Any = None

    def read(self, own: Collection[int]) -> Reading:
        """State of the GPU now."""
        power, reasons = self._told("PowerUsage"), self._told("CurrentClocksThrottleReasons")
        users = self._told("ComputeRunningProcesses")
        return Reading(
            clock_mhz=self._told("ClockInfo", self.nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._told("ClockInfo", self.nvml.NVML_CLOCK_MEM),
            power_w=None if power is None else power / 1000,
            temperature_c=self._told("Temperature", self.nvml.NVML_TEMPERATURE_GPU),
            throttled=None if reasons is None else f"clock event reasons {reasons:#x}" if reasons & SLOWED else "",
            foreign=None if users is None else foreign([user.pid for user in users], own),
        )

    def _told(self, what: str, *arguments: Any) -> Any:
        try:
            return getattr(self.nvml, f"nvmlDeviceGet{what}")(self.handle, *arguments)
        except self.nvml.NVMLError:
            return None


@dataclass(frozen=True)
class AmdBoard(Board):
    """A GPU that AMD SMI knows; never run on a GPU of ours."""

    smi: Any = None
    handle: Any = None

    def read(self, own: Collection[int]) -> Reading:
        """State of the GPU now."""
        smi = self.smi
        hotspot = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        users = self._told("gpu_process_list")
        slowed: object = (self._told("gpu_metrics_info") or {}).get("throttle_status")
        return Reading(
            clock_mhz=_number((self._told("clock_info", smi.AmdSmiClkType.GFX) or {}).get("clk")),
            memory_clock_mhz=_number((self._told("clock_info", smi.AmdSmiClkType.MEM) or {}).get("clk")),
            power_w=_number((self._told("power_info") or {}).get("socket_power")),
            temperature_c=_number(self._told("temp_metric", *hotspot)),
            throttled=("throttled" if slowed else "") if isinstance(slowed, bool) else None,
            foreign=None if users is None else foreign([user["pid"] for user in users], own),
        )

    def _told(self, what: str, *arguments: Any) -> Any:
        try:
            return getattr(self.smi, f"amdsmi_get_{what}")(self.handle, *arguments)
        except self.smi.AmdSmiException:
            return None


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
    return [
        NvidiaBoard(uuid, nvml.nvmlDeviceGetName(gpu), {"CUDA_VISIBLE_DEVICES": uuid}, nvml, gpu)
        for uuid, gpu in ((nvml.nvmlDeviceGetUUID(gpu), gpu) for gpu in gpus)
    ]


def _amd_boards(smi: Any) -> list[Board]:
    smi.amdsmi_init()
    # ROCm takes numbers only where the driver has no UUID.
    return [
        AmdBoard(
            smi.amdsmi_get_gpu_device_uuid(gpu), smi.amdsmi_get_gpu_device_bdf(gpu),
            {"ROCR_VISIBLE_DEVICES": str(number)}, smi, gpu,
        )
        for number, gpu in enumerate(smi.amdsmi_get_processor_handles())
    ]  # fmt: skip


def _number(value: object) -> float | None:
    """A number as it is; ``None`` for what stands for none ("N/A")."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
