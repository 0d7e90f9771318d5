"""Instructions of the LDS: loads, stores, a transposing load, and exchanges between lanes."""

import re
from collections.abc import Callable
from operator import attrgetter

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import Accesses, Array
from amdgpu_emulator.memory_instructions import (
    ATOMICS,
    LOADS,
    Locate,
    Queue,
    access_step,
    vector_row,
)
from amdgpu_emulator.operands import operand_reader
from amdgpu_emulator.wave import LANES, UNWRITTEN_WORDS, Step, Transfer, Waves

_NAMES = {
    "B32": "DWORD", "B64": "DWORDX2", "B96": "DWORDX3", "B128": "DWORDX4", "U8": "UBYTE", "I8": "SBYTE",
    "U16": "USHORT", "I16": "SSHORT", "U16_D16": "SHORT_D16", "U16_D16_HI": "SHORT_D16_HI", "U8_D16": "UBYTE_D16",
    "U8_D16_HI": "UBYTE_D16_HI", "I8_D16": "SBYTE_D16", "I8_D16_HI": "SBYTE_D16_HI", "B8": "BYTE", "B16": "SHORT",
    "B8_D16_HI": "BYTE_D16_HI", "B16_D16_HI": "SHORT_D16_HI",
}  # fmt: skip
"""What loads and stores of a type are called in other memory."""
_ATOMIC_NAME = re.compile(r"([A-Z_]+?)(_RTN)?_([UIBF]|BF)(16|32|64)")
_FIRST_OF_ROTATIONS, _FIRST_OF_FFT = 0xC000, 0xE000
"""Offsets of ``ds_swizzle``."""
_ATOMIC_NAMES = {"WRXCHG": "SWAP", "CMPST": "CMPSWAP"}
_ACCESS = re.compile(r"(READ|WRITE)(2?)(ST64)?_(.+)")
_WAYS = {"READ": "LOAD", "WRITE": "STORE"}
Address = Callable[[Waves], Array]
_lgkm: Queue = attrgetter("lgkm")


def translate_lds(inst: Instruction) -> Step:
    """Translate ``ds_...``."""
    what, acc = inst.name.removeprefix("DS_"), bool(inst.acc)
    address, offset = operand_reader(inst.addr, "u32"), inst.offset0 | inst.offset1 << 8
    first, second, back = (vector_row(register, acc) for register in (inst.data0, inst.data1, inst.vdst))
    if (match := _ACCESS.fullmatch(what)) and match[4] in _NAMES:
        global_name, offsets = _NAMES[match[4]], [offset]
        if match[2]:
            unit = LOADS[global_name][0] * (64 if match[3] else 1)
            offsets = [inst.offset0 * unit, inst.offset1 * unit]
        places = [_locate(address, one) for one in offsets]
        return access_step(f"DS_{_WAYS[match[1]]}_{global_name}", [first, second][: len(places)], back, places, _lgkm)
    if (match := _ATOMIC_NAME.fullmatch(what)) and (operation := _atomic_name(match)) in ATOMICS:
        # What is expected comes before the new value.
        rows = [second, first] if operation.startswith("CMPSWAP") else [first]
        places = [_locate(address, offset)]
        return access_step(f"DS_ATOMIC_{operation}", rows, back if match[2] else None, places, _lgkm)
    if what == "READ_B64_TR_B16":
        return _load_transposed(address, offset, back)
    if what in ("BPERMUTE_B32", "PERMUTE_B32"):
        return _permute(address, offset, first, back, is_backward=what.startswith("B"))
    if what == "SWIZZLE_B32" and offset < _FIRST_OF_FFT:
        lanes = 4 * _swizzled(offset)
        source = vector_row(inst.addr, acc)
        return _permute(lambda w: np.tile(lanes, w.count), 0, source, back, is_backward=True)
    raise UnsupportedInstruction(inst.name)


def _atomic_name(match: re.Match[str]) -> str:
    """Return what an atomic access is called in other memory."""
    name, _, kind, bits = match.groups()
    sign = {"U": "U", "I": "S"}.get(kind, "") if name in ("MIN", "MAX") else ""
    ending = f"_{kind}{bits}" if "F" in kind else "_X2" if bits == "64" else ""
    return sign + _ATOMIC_NAMES.get(name, name) + ending


def _swizzled(pattern: int) -> Array:
    """Return the lane that each lane takes from, by the offset of ``ds_swizzle``."""
    lane = np.arange(LANES, dtype=np.uint32)
    if pattern >= _FIRST_OF_ROTATIONS:
        count = pattern >> 5 & 31
        return lane & 32 | lane + np.uint32(32 - count if pattern >> 10 & 1 else count) & 31
    if pattern >> 15:
        return lane & ~np.uint32(3) | pattern >> 2 * (lane & 3) & 3
    return lane & 32 | (lane & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31


def _locate(address: Address, offset: int) -> Locate:
    def locate(w: Waves, size: int) -> Accesses:
        lanes = w.active()
        # The sum has 32 bits: a negative address with an offset is inside.
        return Accesses(w.lds, lanes, (address(w)[lanes] + np.uint32(offset)).astype(np.int64))

    return locate


def _load_transposed(address: Address, offset: int, row: int) -> Step:
    """Translate ``ds_read_b64_tr_b16``: 16 lanes read 16 rows of four halves, and each gets a column of them."""
    lane = np.arange(LANES)
    sources = (lane & ~15)[None] + 4 * np.arange(4)[:, None] + ((lane & 15) >> 2)[None]

    def complete(w: Waves, transfer: Transfer) -> None:
        halves = np.concatenate([part.load(2) for part in transfer.places])
        w.v[row], w.v[row + 1] = halves[0] | halves[1] << 16, halves[2] | halves[3] << 16

    def step(w: Waves) -> None:
        if not w.whole:
            raise UnsupportedInstruction("DS_READ_B64_TR_B16 with lanes disabled")
        starts = (address(w).reshape(w.count, LANES)[:, sources] + np.uint32(offset)).astype(np.int64)
        at = (starts + 2 * (lane & 3)).transpose(1, 0, 2).reshape(len(sources), -1)
        w.write(row, UNWRITTEN_WORDS[:2], w.every)
        w.issue(w.lgkm, Transfer(tuple(Accesses(w.lds, w.every, part) for part in at), complete))

    return step


def _permute(address: Address, offset: int, data: int, target: int, is_backward: bool) -> Step:
    """Translate ``ds_bpermute_b32`` (take from the lane that an address names) or ``ds_permute_b32`` (write to it)."""

    def complete(w: Waves, transfer: Transfer) -> None:
        w.write(target, transfer.data, transfer.places[0].lanes)

    def step(w: Waves) -> None:
        lanes = w.active()
        other = w.every & ~63 | (address(w) + np.uint32(offset) >> np.uint32(2)) & np.uint32(63)
        values = np.where(w.m, w.v[data], np.uint32(0))
        if is_backward:
            result = values[other]
        else:
            result = np.zeros_like(values)
            result[other[lanes]] = values[lanes]
        w.write(target, UNWRITTEN_WORDS[:1], lanes)
        # It reads no memory, but its result arrives as if it did.
        w.issue(w.lgkm, Transfer((Accesses(w.lds, lanes, lanes),), complete, result[lanes][None]))

    return step
