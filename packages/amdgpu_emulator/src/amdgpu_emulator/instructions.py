"""One decoded instruction becomes a function of a wave; what the tables lack is ``UnsupportedInstruction``."""

import copy
from functools import lru_cache

import numpy as np

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
from amdgpu_emulator.operands import VGPR
from amdgpu_emulator.wave import LANES, M0, SGPRS, Step, Waves

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


def polls_memory(inst: Instruction) -> bool:
    """Return whether an instruction reads what other workgroups may write, as one does that waits for them."""
    if inst.form == "SMEM":
        return "LOAD" in inst.name and bool(inst.glc)
    reads = "_LOAD_" in inst.name or "_ATOMIC_" in inst.name
    return inst.form in ("FLAT", "GLOBAL", "MUBUF") and reads and bool(inst.sc0 or inst.sc1)


def accesses_memory(inst: Instruction) -> bool:
    """Return whether an instruction reads or writes memory or the LDS."""
    return inst.form in _MEMORY


@lru_cache(1 << 16)
def translate(inst: Instruction) -> Step:
    """Return the function that executes an instruction without a branch; instances of a kernel share much of them."""
    name = inst.name
    if name in _WITHOUT_EFFECT:
        return lambda w: None
    if name == "S_TRAP":
        return _stop
    if inst.form in _MEMORY:
        return _MEMORY[inst.form](inst)
    if inst.form.startswith("SOP"):
        return scalar_instructions.translate_scalar(inst)
    if inst.form == "VOP3P_MFMA" and name.startswith("V_MFMA"):
        return matrix_instructions.translate_mfma(inst)
    if name in lane_instructions.LANE_INSTRUCTIONS and not inst.form.endswith(("_SDWA", "_DPP16")):
        return lane_instructions.LANE_INSTRUCTIONS[name](inst)
    if name.startswith("V_"):
        return vector_instructions.translate_vector(inst)
    raise UnsupportedInstruction(inst.opcode)


def moved(inst: Instruction) -> Step:
    """Return a move of words whose registers M0 names in index mode: sources by its bits 12 to 14, the result by 15."""
    if inst.form not in ("VOP1", "VOP3") or not inst.name.startswith("V_MOV_B"):
        raise UnsupportedInstruction(f"{inst.opcode} in index mode")
    fields = [(bit, field) for bit, field in ((12, "src0"), (15, "vdst")) if getattr(inst, field) >= VGPR]

    def step(w: Waves) -> None:
        modes = w.s[M0::SGPRS]
        for mode in dict.fromkeys(modes.tolist()):
            other = copy.copy(inst)
            for bit, field in fields:
                setattr(other, field, getattr(inst, field) + (mode & 0xFF if mode >> bit & 1 else 0))
            w.do_in(w.m & np.repeat(modes == mode, LANES), translate(other))

    return step


def _stop(_: Waves) -> None:
    raise EmulationFault("the kernel stops itself")
