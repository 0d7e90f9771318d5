"""Instructions across the lanes of a wave, and DPP: operands that come from other lanes."""

from collections.abc import Callable

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import Array
from amdgpu_emulator.operands import VGPR, Read, operand_reader, result_writer
from amdgpu_emulator.scalar_instructions import scalar_read, scalar_write
from amdgpu_emulator.wave import EXEC, LANES, Step, Waves


def _by_wave(w: Waves, values: Array) -> Array:
    """Return one value a lane, or one for all, as [waves, lanes]."""
    return np.broadcast_to(values, w.every.shape).reshape(w.count, LANES)


def _read_lane(inst: Instruction) -> Step:
    """Give a scalar register the value of a lane: that of a number, or the first one that is enabled."""
    source, put = operand_reader(inst.src0, "u32"), scalar_write(inst.vdst & 0xFF, 32)
    lane: Read = lambda w: _by_wave(w, w.m).argmax(axis=1)  # noqa: E731
    if inst.name == "V_READLANE_B32":
        number = scalar_read(inst.src1, "u32")
        lane = lambda w: np.array(number(w)) % LANES  # noqa: E731
    return lambda w: put(w, _by_wave(w, source(w))[range(w.count), lane(w)].tolist())


def _write_lane(inst: Instruction) -> Step:
    value, lane = scalar_read(inst.src0, "u32"), scalar_read(inst.src1, "u32")
    row = inst.vdst - VGPR

    def step(w: Waves) -> None:
        w.v[row].reshape(w.count, LANES)[range(w.count), np.array(lane(w)) % LANES] = value(w)

    return step


def _count_below(high: bool) -> Callable[[Instruction], Step]:
    """Return the bits of a mask below each lane, in the mask's lower or upper half."""
    below = np.clip(np.arange(LANES) - 32 * high, 0, 32)
    masks = ((1 << below.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)

    def make(inst: Instruction) -> Step:
        mask, base = operand_reader(inst.src0, "u32"), operand_reader(inst.src1, "u32")
        put = result_writer(inst.vdst, "u32")
        return lambda w: put(w, np.bitwise_count(mask(w) & np.tile(masks, w.count)).astype(np.uint32) + base(w))

    return make


def _swap(inst: Instruction) -> Step:
    a, b = inst.vdst - VGPR, inst.src0 - VGPR

    def step(w: Waves) -> None:
        w.v[[a, b]] = np.where(w.m, w.v[[b, a]], w.v[[a, b]])

    return step


def _swap_rows(lanes: int) -> Callable[[Instruction], Step]:
    """Return a swap of each second row of so many lanes with the first one of another register."""

    def make(inst: Instruction) -> Step:
        a, b = inst.vdst - VGPR, inst.src0 - VGPR

        def step(w: Waves) -> None:
            if not w.whole:
                raise UnsupportedInstruction(f"{inst.opcode} with lanes disabled")
            high, low = (w.v[row].reshape(-1, 2, lanes)[:, half] for row, half in ((a, 1), (b, 0)))
            high[:], low[:] = low.copy(), high.copy()

        return step

    return make


LANE_INSTRUCTIONS: dict[str, Callable[[Instruction], Step]] = {
    "V_READFIRSTLANE_B32": _read_lane,
    "V_READLANE_B32": _read_lane,
    "V_WRITELANE_B32": _write_lane,
    "V_MBCNT_LO_U32_B32": _count_below(False),
    "V_MBCNT_HI_U32_B32": _count_below(True),
    "V_SWAP_B32": _swap,
    "V_PERMLANE16_SWAP_B32": _swap_rows(16),
    "V_PERMLANE32_SWAP_B32": _swap_rows(32),
}


def _dpp_sources(control: int) -> Array:
    """Return the lane that each lane reads; -1 if there is none."""
    lane = np.arange(LANES)
    row, place, count = lane & ~15, lane & 15, control & 15
    if control < 0x100:
        return (lane & ~3) | control >> 2 * (lane & 3) & 3
    whole_rows: dict[int, Array] = {
        0x140: row | 15 - place, 0x141: lane ^ 7, 0x142: np.where(row > 0, row - 1, -1),
        0x143: np.where(lane >= 32, 31, -1),
    }  # fmt: skip
    by_count: dict[int, Array] = {
        0x100: np.where(place + count < 16, lane + count, -1), 0x110: np.where(place >= count, lane - count, -1),
        0x120: row | (place - count) & 15, 0x150: row | count,
    }  # fmt: skip
    found = whole_rows.get(control, by_count.get(control & 0x1F0))
    if found is None:
        raise UnsupportedInstruction(f"DPP control {control:#x}")
    return found


def of_other_lanes(inst: Instruction, source: Read) -> Read:
    """Return the operand with the values of the lanes that DPP names, 0 where there is none that is enabled."""
    of_wave = _dpp_sources(inst.dpp)

    def read(w: Waves) -> Array:
        values = source(w).reshape(w.count, LANES)[:, of_wave].ravel()
        return np.where(_has_source(w, of_wave), values, values.dtype.type(0))

    return read


def in_rows(inst: Instruction, step: Step) -> Step:
    """Return a step that writes the rows and banks of lanes that DPP names, and there what has a source, or all."""
    of_wave, lane, writes_anyway = _dpp_sources(inst.dpp), np.arange(LANES), bool(inst.bc)
    allowed = inst.row_mask >> (lane >> 4) & 1 & inst.bank_mask >> ((lane & 15) >> 2) & 1 == 1
    return lambda w: w.do_in(w.m & np.tile(allowed, w.count) & (_has_source(w, of_wave) | writes_anyway), step)


def _has_source(w: Waves, of_wave: Array) -> Array:
    return (w.mask(EXEC).reshape(w.count, LANES)[:, of_wave] & (of_wave >= 0)).ravel()
