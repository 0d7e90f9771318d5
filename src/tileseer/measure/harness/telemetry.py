"""The GPUs of this machine and their state, from the vendor's library: clocks, power, temperature, throttling, others.

The libraries are optional: ``nvidia-ml-py`` (the extra ``gpu``) for NVIDIA, and ``amdsmi``, a part of ROCm, for AMD.
Neither makes a context on the GPU. What a library does not report is ``None``: a missing reading is no zero.
"""

import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tileseer.core.errors import UserError
from tileseer.gpus.hardware import target
from tileseer.measure.harness.visible import VARIABLES, Gpu, amd_gpus, shown

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
    """One GPU of this machine. Without a vendor's library or driver all is empty."""

    uuid: str = ""
    """Its UUID; of AMD's GPUs the PCI address, which needs no library."""
    name: str = ""
    arch: str = ""
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


def boards(backend: str, warn: bool = True) -> list[Board]:
    """The GPUs of this machine that the environment leaves visible; none if no driver lists them.

    What is missing is printed on standard error. A ``UserError`` if the environment hides all GPUs.
    """
    module, how = LIBRARIES[backend]
    missing, library = "", None
    try:
        library = importlib.import_module(module)
        (library.nvmlInit if backend == "cuda" else library.amdsmi_init)()
    except Exception as error:  # amdsmi raises a KeyError where ROCm is missing, NVML its own error without a driver.
        missing, library = f"{how} or the GPU's driver is missing ({error})", None
    amd = backend == "hip"
    gpus = amd_gpus() if amd else _nvidia_gpus(library) if library else []
    if missing and warn:
        lock = "" if gpus else ", and the GPU's lock has the name of its product"
        message = (
            f"telemetry: {missing}: throttling shows in the sentinel pair alone, other processes do not show{lock}"
        )
        print(message, file=sys.stderr)
    left = shown(backend, gpus)
    if gpus and not left:
        named = " ".join(f"{name}={os.environ[name]!r}" for name in VARIABLES[backend] if name in os.environ)
        raise UserError(
            f"none of the {len(gpus)} GPUs of this machine is visible: {named}; unset it or name another one"
        )
    return (_amd_boards if amd else _nvidia_boards)(library, left)


def targets(backend: str) -> set[str]:
    """Targets (gfx942, sm_90) of the visible GPUs; none where nothing tells them."""
    return {board.arch for board in boards(backend, warn=False)} - {""}


def refuse_other_gpus(device: str, arch: str) -> None:
    """``UserError`` if no GPU of this machine is of the arch; where there is none, the benchmark finds out."""
    visible = targets(device) if device in VARIABLES else set()
    if visible and target(arch).removesuffix("a") not in visible:
        raise UserError(
            f"benchmark.device is {device}, and the visible GPUs are {', '.join(sorted(visible))}, not {target(arch)}; "
            f"give --config arch={min(visible)}, or show another GPU"
        )


def _nvidia_gpus(nvml: Any) -> list[Gpu]:
    def arch(gpu: Any) -> str:
        with suppress(nvml.NVMLError):
            return "sm_{}{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(gpu))
        return ""

    gpus = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    return [Gpu(number, nvml.nvmlDeviceGetUUID(gpu), arch(gpu)) for number, gpu in enumerate(gpus)]


def _nvidia_boards(nvml: Any, gpus: Sequence[Gpu]) -> list[Board]:
    handles = {gpu: nvml.nvmlDeviceGetHandleByIndex(gpu.number) for gpu in gpus}
    return [
        Board(
            gpu.uuid, nvml.nvmlDeviceGetName(handle), gpu.arch, {"CUDA_VISIBLE_DEVICES": gpu.uuid},
            partial(_nvidia_reading, nvml, handle),
        )
        for gpu, handle in handles.items()
    ]  # fmt: skip


def _nvidia_reading(nvml: Any, gpu: Any, own: Collection[int]) -> Reading:
    def read(what: str, *arguments: Any) -> Any:
        with suppress(nvml.NVMLError):
            return getattr(nvml, f"nvmlDeviceGet{what}")(gpu, *arguments)

    power, reasons, users = read("PowerUsage"), read("CurrentClocksThrottleReasons"), read("ComputeRunningProcesses")
    return Reading(
        clock_mhz=read("ClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock_mhz=read("ClockInfo", nvml.NVML_CLOCK_MEM),
        power_w=None if power is None else power / 1000,
        temperature_c=read("Temperature", nvml.NVML_TEMPERATURE_GPU),
        throttled=None if reasons is None else f"clock event reasons {reasons:#x}" if reasons & SLOWED else "",
        foreign=None if users is None else foreign([user.pid for user in users], own),
    )


def _amd_boards(smi: Any, gpus: Sequence[Gpu]) -> list[Board]:
    handles = (
        {smi.amdsmi_get_gpu_device_bdf(handle): handle for handle in smi.amdsmi_get_processor_handles()} if smi else {}
    )
    parts: Counter[str] = Counter()
    boards = []
    for gpu in gpus:
        # Partitions of a GPU share its address.
        name = f"{gpu.pci}-{parts[gpu.pci]}" if parts[gpu.pci] else gpu.pci
        parts[gpu.pci] += 1
        # The runtime below HIP shows this one alone, so that HIP sees one, its first.
        alone = {"ROCR_VISIBLE_DEVICES": str(gpu.number), "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}
        reading = [partial(_amd_reading, smi, handles[gpu.pci])] if gpu.pci in handles else []
        boards.append(Board(name, gpu.pci, gpu.arch, alone, *reading))
    return boards


def _amd_reading(smi: Any, gpu: Any, own: Collection[int]) -> Reading:
    """Reading of AMD SMI; never run on a GPU of ours."""

    def read(what: str, *arguments: Any) -> Any:
        with suppress(smi.AmdSmiException):
            return getattr(smi, f"amdsmi_get_{what}")(gpu, *arguments)

    hotspot = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
    users = read("gpu_process_list")
    slowed: object = (read("gpu_metrics_info") or {}).get("throttle_status")
    return Reading(
        clock_mhz=_number((read("clock_info", smi.AmdSmiClkType.GFX) or {}).get("clk")),
        memory_clock_mhz=_number((read("clock_info", smi.AmdSmiClkType.MEM) or {}).get("clk")),
        power_w=_number((read("power_info") or {}).get("socket_power")),
        temperature_c=_number(read("temp_metric", *hotspot)),
        throttled=("throttled" if slowed else "") if isinstance(slowed, bool) else None,
        foreign=None if users is None else foreign([user["pid"] for user in users], own),
    )


def _number(value: object) -> float | None:
    """A number as it is; ``None`` for what stands for none ("N/A")."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
