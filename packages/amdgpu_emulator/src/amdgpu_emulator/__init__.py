"""Kernels of AMD GPUs, executed instruction by instruction on the CPU: to check results, never to time them.

    code = amdgpu_emulator.load(Path("kernels.co"))
    code.launch("add_one", grid=(2, 1, 1), block=(64, 1, 1), arguments=[x, np.uint32(100)])

The GPUs are CDNA 2 to 4 (gfx90a, gfx942, gfx950). ``README.md`` says what is executed and how. Import nothing from the
modules of this package: what it offers is here.
"""

from amdgpu_emulator.access_check import Access, Race, UnwrittenLoad
from amdgpu_emulator.code_object import CodeObject, KernelDescriptor, bundle_bytes, load
from amdgpu_emulator.coverage import Coverage
from amdgpu_emulator.device import ARCHS, EmulatedGpu, Execution
from amdgpu_emulator.faults import EmulationFault, EmulationHang, MemoryFault, UnsupportedInstruction

__all__ = [
    "ARCHS",
    "Access",
    "CodeObject",
    "Coverage",
    "EmulatedGpu",
    "EmulationFault",
    "EmulationHang",
    "Execution",
    "KernelDescriptor",
    "MemoryFault",
    "Race",
    "UnsupportedInstruction",
    "UnwrittenLoad",
    "bundle_bytes",
    "load",
]
