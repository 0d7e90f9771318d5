"""The GPUs of this machine that the environment leaves visible, numbered as the vendor's runtime numbers them.

Of AMD's GPUs the kernel's driver (KFD) tells target and PCI address, so that ROCm's libraries are not needed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
VARIABLES = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""Of each backend, in the order in which they count."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver shows it; ``number`` is its place among all of the machine."""

    number: int
    uuid: str
    arch: str = ""
    pci: str = ""


def amd_gpus(nodes: Path = KFD_NODES) -> list[Gpu]:
    """AMD's GPUs; those of other containers cannot be read and do not count."""
    gpus: list[Gpu] = []
    for path in sorted(nodes.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            text = (path / "properties").read_text()
        except OSError:
            continue
        rows = {name: int(value) for name, value in (line.split() for line in text.splitlines() if " " in line)}
        # A CPU has version 0. 90402 is gfx942: two decimal digits each of minor and stepping, the latter hexadecimal.
        if version := rows.get("gfx_target_version", 0):
            arch = f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"
            place = rows.get("location_id", 0)
            pci = f"{rows.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            gpus.append(Gpu(len(gpus), f"GPU-{rows.get('unique_id', 0):016x}", arch, pci))
    return gpus


def shown(backend: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that the environment leaves visible, in the order that it gives.

    ROCm's runtime takes ``ROCR_VISIBLE_DEVICES`` first. HIP chooses among what is left, by ``HIP_VISIBLE_DEVICES`` or,
    where that is empty, by ``CUDA_VISIBLE_DEVICES``; an empty one hides nothing there.
    """
    first, *others = VARIABLES[backend]
    outer = os.environ.get(first)
    left = list(gpus) if outer is None else _picked(gpus, outer)
    inner = next((value for name in others if (value := os.environ.get(name))), "")
    return _picked(left, inner) if inner else left


def _picked(gpus: Sequence[Gpu], listed: str) -> list[Gpu]:
    """Those that a list of numbers and UUIDs names; the first entry that names none ends it, as in the runtimes."""
    picked: list[Gpu] = []
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdecimal():
            matches = list(gpus[int(entry) : int(entry) + 1])
        else:
            matches = [gpu for gpu in gpus if entry and gpu.uuid.lower().startswith(entry.lower())]
        if len(matches) != 1:
            break
        picked += matches
    return picked
