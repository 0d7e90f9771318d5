"""One decoded instruction becomes a function of a wave; what the tables lack is ``UnsupportedInstruction``."""

from amdgpu_emulator import (
    lane_instructions,
    lds_instructions,
    matrix_instructions,
    memory_instructions,
    scalar_instructions,
    vector_instructions,
)
from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import EmulationFault, UnsupportedInstruction
from amdgpu_emulator.wave import Step, Waves

_MEMORY = {
    "DS": lds_instructions.translate_lds,
    "FLAT": memory_instructions.translate_global,
    "GLOBAL": memory_instructions.translate_global,
    "MUBUF": memory_instructions.translate_buffer,
    "SCRATCH": memory_instructions.translate_scratch,
    "SMEM": memory_instructions.translate_scalar_load,
}
_WITHOUT_EFFECT = frozenset(
    ("S_NOP", "S_SETPRIO", "S_SLEEP", "S_ICACHE_INV", "S_DCACHE_INV", "S_DCACHE_WB", "S_SETHALT", "S_INCPERFLEVEL",
     "S_DECPERFLEVEL", "S_TTRACEDATA", "S_SENDMSG", "V_NOP", "V_CLREXCP")
)  # fmt: skip
"""Instructions without an effect on results: memory here is always coherent."""


def polls_memory(inst: Instruction, name: str) -> bool:
    """Return whether an instruction reads what other workgroups may write, as one does that waits for them."""
    if type(inst).__name__ == "SMEM":
        return "LOAD" in name and bool(inst.glc)
    reads = "_LOAD_" in name or "_ATOMIC_" in name
    return type(inst).__name__ in ("FLAT", "GLOBAL", "MUBUF") and reads and bool(inst.sc0 or inst.sc1)


def accesses_memory(inst: Instruction) -> bool:
    """Return whether an instruction reads or writes memory or the LDS."""
    return type(inst).__name__ in _MEMORY


def translate(inst: Instruction, name: str, arch: str = "gfx950") -> Step:
    """Return the function that executes an instruction without a branch; ``name`` is that of the opcode on its arch."""
    is_ocp = arch == "gfx950"
    encoding = type(inst).__name__
    if name in _WITHOUT_EFFECT:
        return lambda w: None
    if name == "S_TRAP":

        def trap(_: Waves) -> None:
            raise EmulationFault("the kernel stops itself")

        return trap
    if encoding in _MEMORY:
        return _MEMORY[encoding](inst, name)
    if encoding.startswith("SOP"):
        return scalar_instructions.translate_scalar(inst, encoding, name)
    if encoding == "VOP3P_MFMA" and name.startswith("V_MFMA"):
        return matrix_instructions.translate_mfma(inst, name, is_ocp)
    if name in lane_instructions.LANE_INSTRUCTIONS:
        return lane_instructions.LANE_INSTRUCTIONS[name](inst)
    if name.startswith("V_"):
        return vector_instructions.translate_vector(inst, encoding, name, is_ocp)
    raise UnsupportedInstruction(inst.op.name)
