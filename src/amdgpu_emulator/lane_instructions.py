"""Instructions across the lanes of a wave, and DPP: operands that come from other lanes."""

from collections.abc import Callable

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.operands import VGPR, operand_reader, result_writer
from amdgpu_emulator.scalar_instructions import scalar_read, scalar_write
from amdgpu_emulator.wave import LANES, Array, Step, Wave


def _first_lane(inst: Instruction) -> Step:
    source, target = operand_reader(inst.src0.offset, "u32"), inst.vdst.offset & 0xFF
    put = scalar_write(target, 32)

    def step(w: Wave) -> None:
        values = source(w)
        put(w, int(values[np.argmax(w.m) if len(values) > 1 else 0]))

    return step


def _read_lane(inst: Instruction) -> Step:
    source, lane = operand_reader(inst.src0.offset, "u32"), scalar_read(inst.src1.offset, 32, None)
    put = scalar_write(inst.vdst.offset & 0xFF, 32)
    return lambda w: put(w, int(np.broadcast_to(source(w), LANES)[lane(w) & 63]))


def _write_lane(inst: Instruction) -> Step:
    value, lane = scalar_read(inst.src0.offset, 32, None), scalar_read(inst.src1.offset, 32, None)
    row = inst.vdst.offset - VGPR

    def step(w: Wave) -> None:
        w.v[row, lane(w) & 63] = value(w)

    return step


def _count_below(high: bool) -> Callable[[Instruction], Step]:
    """Bits of a mask below each lane, in the mask's lower or upper half."""
    below = np.clip(np.arange(LANES) - 32 * high, 0, 32)
    masks = ((1 << below.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)

    def make(inst: Instruction) -> Step:
        mask, base = operand_reader(inst.src0.offset, "u32"), operand_reader(inst.src1.offset, "u32")
        put = result_writer(inst.vdst.offset, "u32")
        return lambda w: put(w, np.bitwise_count(mask(w) & masks).astype(np.uint32) + base(w))

    return make


def _swap(inst: Instruction) -> Step:
    a, b = inst.vdst.offset - VGPR, inst.src0.offset - VGPR

    def step(w: Wave) -> None:
        w.v[[a, b]] = np.where(w.m, w.v[[b, a]], w.v[[a, b]])

    return step


LANE_INSTRUCTIONS: dict[str, Callable[[Instruction], Step]] = {
    "V_READFIRSTLANE_B32": _first_lane,
    "V_READLANE_B32": _read_lane,
    "V_WRITELANE_B32": _write_lane,
    "V_MBCNT_LO_U32_B32": _count_below(False),
    "V_MBCNT_HI_U32_B32": _count_below(True),
    "V_SWAP_B32": _swap,
}


def _dpp_sources(control: int) -> Array:
    """The lane that each lane reads; -1 if there is none."""
    lane = np.arange(LANES)
    row, place = lane & ~15, lane & 15
    if control < 0x100:
        return (lane & ~3) | control >> 2 * (lane & 3) & 3
    kind, count = control & 0x1F0, control & 15
    if kind == 0x100:
        return np.where(place + count < 16, lane + count, -1)
    if kind == 0x110:
        return np.where(place >= count, lane - count, -1)
    if kind == 0x120:
        return row | (place - count) & 15
    if control == 0x140:
        return row | 15 - place
    if control == 0x141:
        return (lane & ~7) | 7 - (lane & 7)
    if control == 0x142:
        return np.where(row > 0, row - 1, -1)
    if control == 0x143:
        return np.where(lane >= 32, 31, -1)
    if kind == 0x150:
        return row | count
    raise UnsupportedInstruction(f"DPP control {control:#x}")


def with_lanes_of(inst: Instruction, step: Step) -> Step:
    """A DPP instruction: its first operand comes from other lanes."""
    sources, row = _dpp_sources(inst.dpp), inst.vsrc0.offset - VGPR
    lane = np.arange(LANES)
    allowed = (inst.row_mask >> (lane >> 4) & 1 & inst.bank_mask >> ((lane & 15) >> 2) & 1).astype(bool)

    def run(w: Wave) -> None:
        kept, mask, whole = w.v[row].copy(), w.m, w.whole
        there = (sources >= 0) & mask[sources]
        w.v[row] = np.where(there, kept[sources], np.uint32(0))
        w.m = mask & allowed & (there | bool(inst.bc))
        w.whole = bool(w.m.all())
        step(w)
        if inst.vdst.offset - VGPR == row:
            kept = np.where(w.m, w.v[row], kept)
        w.v[row], w.m, w.whole = kept, mask, whole

    return run
