"""The GPUs of this machine and their state, from the vendor's library: throttling, and who else uses them.

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
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError
from tileseer.core.places import install
from tileseer.core.reading import regular_file
from tileseer.facts.hardware import target

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
VARIABLES = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""What hides GPUs of each backend, in the order in which they count."""
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons that are faults of the moment: hardware slowdown, thermal (software, hardware), power
brake. The power cap (0x4) is none: it is how a GPU under load runs."""
SLOWED_AMD = ("prochot_thrm", "socket_thrm", "vr_thrm", "hbm_thrm")
"""The same of AMD SMI's violations; ``ppt_pwr`` is the power cap."""
LIBRARIES = {
    "cuda": ("pynvml", f"nvidia-ml-py ({install('gpu')})"),
    "hip": ("amdsmi", "amdsmi (for pip in share/amd_smi of the ROCm install)"),
}
"""Of each backend: the module, and how to get it."""
DRIVERS = {
    "hip": (Path("/dev/kfd"), "load the amdgpu driver, and give a container --device /dev/kfd --device /dev/dri"),
    "cuda": (Path("/proc/driver/nvidia/gpus"), "load the nvidia driver"),
}
"""Of each backend: what its driver brings, and how to get it."""


def missing_driver(backend: str) -> str:
    """Return why no GPU of the backend can be used here, and what to do; "" where its driver runs."""
    driver, fix = DRIVERS[backend]
    if not driver.exists():
        return f"there is no {driver}; {fix}"
    if backend == "hip" and not os.access(driver, os.R_OK | os.W_OK):
        return f"{driver} is not yours to open; join the group render (a container: --group-add render)"
    return ""


@dataclass(frozen=True)
class Reading:
    """State of a GPU at a moment."""

    throttled: str | None = None
    """Why it is slowed down, empty if it is not."""
    foreign: int | None = None
    """Processes of others on it."""


@dataclass(frozen=True)
class Board:
    """One GPU of this machine. Without a vendor's library or driver all is empty."""

    uuid: str = ""
    lock: str = ""
    """Names its lock: the UUID; of AMD's GPUs the PCI address."""
    arch: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Makes it the only one that a process sees."""
    read: Callable[[Collection[int]], Reading] = field(default=lambda own: Reading(), compare=False)
    """State of the GPU now, from those of our processes that may be on it."""


def foreign(pids: Collection[int], own: Collection[int]) -> int:
    """Return the number of processes that are not our own.

    In a container the numbers may be those of the host: one of them is then taken for our worker's.
    """
    hidden = bool(own) and not set(pids) & set(own)
    return max(0, len(set(pids) - set(own)) - hidden)


def boards(backend: str, warn: bool = True) -> list[Board]:
    """Return the GPUs of this machine that the environment leaves visible; none if no driver lists them.

    What is missing is printed on standard error. A ``UserError`` if the environment hides all GPUs.
    """
    module, how = LIBRARIES[backend]
    missing, library = "", None
    try:
        library = importlib.import_module(module)
        (library.nvmlInit if backend == "cuda" else library.amdsmi_init)()
    except Exception as error:  # amdsmi raises a KeyError where ROCm is missing, NVML its own error without a driver.
        missing, library = f"{how} or the GPU's driver is missing ({error})", None
    listed = amd_boards(library) if backend == "hip" else _nvidia_boards(library) if library else []
    if missing and warn:
        lock = "" if listed else ", and the GPU's lock has the name of its product"
        message = (
            f"telemetry: {missing}: throttling shows in the sentinel pair alone, other processes do not show{lock}"
        )
        print(message, file=sys.stderr)
    visible = visible_boards(backend, listed)
    if listed and not visible:
        named = " ".join(f"{name}={os.environ[name]!r}" for name in VARIABLES[backend] if name in os.environ)
        raise UserError(
            f"none of the {len(listed)} GPUs of this machine is visible: {named}; unset it or name another one"
        )
    return visible


def visible_boards(backend: str, all_boards: Sequence[Board]) -> list[Board]:
    """Return the GPUs that the environment leaves visible, in the order that it gives.

    ROCm's runtime takes ``ROCR_VISIBLE_DEVICES`` first. HIP chooses among what is left, by ``HIP_VISIBLE_DEVICES`` or,
    where that is empty, by ``CUDA_VISIBLE_DEVICES``; an empty one hides nothing there.
    """
    first, *others = VARIABLES[backend]
    outer = os.environ.get(first)
    left = list(all_boards) if outer is None else _picked(all_boards, outer)
    inner = next((value for name in others if (value := os.environ.get(name))), "")
    return _picked(left, inner) if inner else left


def _picked(all_boards: Sequence[Board], listed: str) -> list[Board]:
    """Return those that a list of numbers and UUIDs names; an entry that names none ends it, as in the runtimes."""
    picked: list[Board] = []
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdecimal():
            matches = list(all_boards[int(entry) : int(entry) + 1])
        else:
            matches = [board for board in all_boards if entry and board.uuid.lower().startswith(entry.lower())]
        if len(matches) != 1:
            break
        picked += matches
    return picked


def refuse_other_gpus(device: str, arch: str) -> None:
    """Raise a ``UserError`` if no GPU here is of the arch; where there is none, the benchmark finds out."""
    visible = {board.arch for board in boards(device, warn=False)} - {""} if device in VARIABLES else set()
    if visible and target(arch).removesuffix("a") not in visible:
        raise UserError(
            f"benchmark.device is {device}, and the visible GPUs are {', '.join(sorted(visible))}, not {target(arch)}; "
            f"give --config arch={min(visible)}, or show another GPU"
        )


def _nvidia_boards(nvml: Any) -> list[Board]:
    listed = []
    for gpu in map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())):
        uuid, arch = nvml.nvmlDeviceGetUUID(gpu), ""
        with suppress(nvml.NVMLError):
            arch = "sm_{}{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(gpu))
        listed.append(Board(uuid, uuid, arch, {"CUDA_VISIBLE_DEVICES": uuid}, partial(_nvidia_reading, nvml, gpu)))
    return listed


def _nvidia_reading(nvml: Any, gpu: Any, own: Collection[int]) -> Reading:
    def read(what: str) -> Any:
        with suppress(nvml.NVMLError):
            return getattr(nvml, f"nvmlDeviceGet{what}")(gpu)

    reasons, users = read("CurrentClocksThrottleReasons"), read("ComputeRunningProcesses")
    return Reading(
        throttled=None if reasons is None else f"clock event reasons {reasons:#x}" if reasons & SLOWED else "",
        foreign=None if users is None else foreign([user.pid for user in users], own),
    )


def amd_boards(smi: Any = None) -> list[Board]:
    """Return AMD's GPUs as the kernel's driver (KFD) shows them; those of other containers do not count."""
    handles = (
        {smi.amdsmi_get_gpu_device_bdf(handle): handle for handle in smi.amdsmi_get_processor_handles()} if smi else {}
    )
    listed: list[Board] = []
    parts: Counter[str] = Counter()
    for path in sorted(KFD_NODES.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            with regular_file(path / "properties") as stream:
                text = stream.read().decode()
        except OSError:
            continue
        rows = {name: int(value) for name, value in (line.split() for line in text.splitlines() if " " in line)}
        # A CPU has version 0. 90402 is gfx942: two decimal digits each of minor and stepping, the latter hexadecimal.
        if version := rows.get("gfx_target_version", 0):
            arch = f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"
            place = rows.get("location_id", 0)
            pci = f"{rows.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            # Partitions of a GPU share its address.
            lock = f"{pci}-{parts[pci]}" if parts[pci] else pci
            parts[pci] += 1
            # The runtime below HIP shows this one alone, so that HIP sees one, its first.
            alone = dict(zip(VARIABLES["hip"], (str(len(listed)), "0", "0"), strict=True))
            reading = [partial(_amd_reading, smi, handles[pci])] if pci in handles else []
            listed.append(Board(f"GPU-{rows.get('unique_id', 0):016x}", lock, arch, alone, *reading))
    return listed


def _amd_reading(smi: Any, gpu: Any, own: Collection[int]) -> Reading:
    """Return the reading of AMD SMI; never run on a GPU of ours."""

    def read(what: str) -> Any:
        # An older library has not all of these functions.
        with suppress(smi.AmdSmiException, AttributeError):
            return getattr(smi, f"amdsmi_get_{what}")(gpu)

    users = read("gpu_process_list")
    return Reading(
        throttled=_slowed(read("violation_status") or {}, read("gpu_metrics_info") or {}),
        foreign=None if users is None else foreign([user["pid"] for user in users], own),
    )


def _slowed(violations: Mapping[str, object], metrics: Mapping[str, object]) -> str | None:
    """Return why an AMD GPU is slowed down, empty if it is not; ``None`` if it does not say.

    MI300 and newer GPUs have violations, each one ``True``, ``False`` or "N/A"; older ones have a status.
    """
    active = {name: violations[f"active_{name}"] for name in SLOWED_AMD if f"active_{name}" in violations}
    if any(isinstance(value, bool) for value in active.values()):
        return " ".join(name for name, value in active.items() if value is True)
    status = metrics.get("throttle_status")
    return ("throttled" if status else "") if isinstance(status, bool) else None
