"""Instructions that read and write memory: scalar loads, buffers, global memory, scratch.

An instruction takes addresses and data from registers when it is issued. The access itself happens at the wait for it,
or at once (``Wave.issue``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import MemoryFault, UnsupportedInstruction
from amdgpu_emulator.memory import WORD, Allocation, GlobalMemory
from amdgpu_emulator.operands import ACC, VGPR, operand_reader
from amdgpu_emulator.vector_operations import bf16
from amdgpu_emulator.wave import LANES, M0, Array, Pending, Step, Wave

_NO_SCALAR = (124, 127)
"""Codes of the scalar address that mean none."""
_LOADS = {
    **{name: (words * WORD, "words") for words, name in enumerate(("DWORD", "DWORDX2", "DWORDX3", "DWORDX4"), 1)},
    "UBYTE": (1, "zero"), "SBYTE": (1, "sign"), "USHORT": (2, "zero"), "SSHORT": (2, "sign"), "SHORT_D16": (2, "low"),
    "SHORT_D16_HI": (2, "high"), "UBYTE_D16": (1, "low"), "UBYTE_D16_HI": (1, "high"),
}  # fmt: skip
"""Bytes of a load, and what becomes of the register: words, a byte or half extended, or half of a word replaced."""
_STORES = {
    **{name: (words * WORD, False) for words, name in enumerate(("DWORD", "DWORDX2", "DWORDX3", "DWORDX4"), 1)},
    "BYTE": (1, False), "SHORT": (2, False), "BYTE_D16_HI": (1, True), "SHORT_D16_HI": (2, True),
}  # fmt: skip
"""Bytes of a store, and whether they come from the upper half."""
_ATOMICS: dict[str, tuple[int, int, Callable[[Array, Array], Array]]] = {
    "ADD_F32": (1, 1, lambda old, add: (old.view(np.float32) + add.view(np.float32)).view(np.uint32)),
    "ADD": (1, 1, lambda old, add: old + add),
    "PK_ADD_F16": (1, 1, lambda old, add: (old.view(np.float16) + add.view(np.float16)).view(np.uint32)),
    "PK_ADD_BF16": (1, 1, lambda old, add: _add_packed_bf16(old, add)),
    "CMPSWAP": (1, 2, lambda old, data: data[:1] if old == data[1:] else old),
    "CMPSWAP_X2": (2, 4, lambda old, data: data[:2] if (old == data[2:]).all() else old),
}
"""Words in memory, words of data, and what an atomic access makes of them; a swap has the new value before the old."""


@dataclass(slots=True)
class Accesses:
    """Where the active lanes of a wave access memory in one instruction."""

    memory: Allocation | GlobalMemory
    lanes: Array
    at: Array
    """Address per active lane."""
    inside: Array | None = None
    """Which words [words, active lanes] are inside of the buffer; ``None``: all. Outside, loads give 0 and stores do
    nothing."""

    def load(self, size: int) -> Array:
        """As ``Allocation.load``."""
        if self.inside is None:
            return self.memory.load(self.at, size)
        values = np.zeros(self.inside.shape, np.uint32)
        for word, valid in enumerate(self.inside):
            values[word, valid] = self.memory.load(self.at[valid] + WORD * word, min(size, WORD))[0]
        return values

    def store(self, size: int, values: Array) -> None:
        """As ``Allocation.store``."""
        if self.inside is None:
            self.memory.store(self.at, size, values)
            return
        for word, valid in enumerate(self.inside):
            self.memory.store(self.at[valid] + WORD * word, min(size, WORD), values[word : word + 1, valid])

    def update(self, operation: str, data: Array) -> Array:
        """Change memory atomically, lane after lane; what was there before each: words [words, lanes]."""
        words, _, compute = _ATOMICS[operation]
        before = np.zeros((words, len(self.at)), np.uint32)
        for lane in range(len(self.at)):
            if self.inside is None or self.inside[:, lane].all():
                at = self.at[lane : lane + 1]
                old = np.ascontiguousarray(self.memory.load(at, words * WORD)[:, 0])
                before[:, lane] = old
                self.memory.store(at, words * WORD, compute(old, np.ascontiguousarray(data[:, lane]))[:, None])
        return before


Locate = Callable[[Wave, int], Accesses]
"""Where a wave accesses so many bytes per lane, by its registers as they are now."""
Queue = Callable[[Wave], Pending]
_vm: Queue = attrgetter("vm")


def translate_scalar_load(inst: Instruction, name: str) -> Step:
    """``s_load_dword...``, and ``s_memtime``."""
    if name == "S_MEMTIME":
        return _clock(inst)
    match = re.fullmatch(r"S_LOAD_DWORD(?:X(\d+))?", name)
    if not match:
        raise UnsupportedInstruction(name)
    count, target, base = int(match[1] or 1), inst.sdata.offset, inst.sbase.offset
    offset = inst.offset if inst.imm else 0
    offset -= (offset & 1 << 20) << 1
    index = inst.soffset.offset if inst.soffset_en else None
    if not inst.imm:
        index = inst._raw >> 32 & 0x7F

    def step(w: Wave) -> None:
        at = w.s64.item(base // 2) + offset + (w.s.item(index) if index is not None else 0)
        at &= ~3

        def access() -> None:
            w.s[target : target + count] = w.memory.bytes(at, count * WORD).view(np.uint32)

        w.issue(w.scalar, access)

    return step


def _clock(inst: Instruction) -> Step:
    """``s_memtime``: there is no time, so it counts how often it was read."""
    target = inst.sdata.offset // 2

    def step(w: Wave) -> None:
        w.s64[target] = next(w.memory.clock)

    return step


def translate_global(inst: Instruction, name: str) -> Step:
    """``global_...``, and ``flat_...`` of global memory."""
    scalar, offset = inst.saddr.offset, inst.offset
    if type(inst).__name__ == "GLOBAL":
        offset -= (offset & 1 << 12) << 1
    wide, narrow = operand_reader(inst.addr.offset, "u64"), operand_reader(inst.addr.offset, "u32")
    has_scalar = scalar not in _NO_SCALAR and type(inst).__name__ != "FLAT"

    def locate(w: Wave, size: int) -> Accesses:
        lanes = np.flatnonzero(w.m)
        if has_scalar:
            at = narrow(w)[lanes].astype(np.int64) + w.si64.item(scalar // 2)
        else:
            at = wide(w)[lanes].astype(np.int64)
        return Accesses(w.memory, lanes, at + offset)

    kind, _, what = name.partition("_")[2].partition("_")
    if kind == "ATOMIC" and what in _ATOMICS:
        back = vector_row(inst.vdst.offset, inst.acc) if inst._raw >> 16 & 1 else None
        return _atomic(what, vector_row(inst.data.offset, inst.acc), back, locate)
    return _load_or_store(inst, name, locate)


def translate_scratch(inst: Instruction, name: str) -> Step:
    """``scratch_...``: private memory of each lane."""
    offset = inst.offset - ((inst.offset & 1 << 12) << 1)
    base = inst.saddr.offset
    by_lane = operand_reader(inst.addr.offset, "u32") if inst.sve else None

    def locate(w: Wave, size: int) -> Accesses:
        lanes = np.flatnonzero(w.m)
        start = offset + (w.s.item(base) if base not in _NO_SCALAR else 0)
        at = np.full(len(lanes), start, np.int64)
        if by_lane is not None:
            at += by_lane(w)[lanes].astype(np.int64)
        lane_bytes = len(w.scratch.u8) // LANES
        if len(at) and not (at.min() >= 0 and at.max() < lane_bytes):
            raise MemoryFault(f"scratch at {int(at.max())}, of which a lane has {lane_bytes} bytes")
        return Accesses(w.scratch, lanes, at + lanes * lane_bytes)

    return _load_or_store(inst, name, locate)


def _load_or_store(inst: Instruction, name: str, locate: Locate) -> Step:
    kind, _, what = name.partition("_")[2].partition("_")
    if kind == "LOAD" and what in _LOADS:
        return load_step(*_LOADS[what], vector_row(inst.vdst.offset, inst.acc), locate, _vm)
    if kind == "STORE" and what in _STORES:
        return store_step(*_STORES[what], vector_row(inst.data.offset, inst.acc), locate, _vm)
    raise UnsupportedInstruction(name)


def translate_buffer(inst: Instruction, name: str) -> Step:
    """``buffer_...``: through a descriptor, which bounds the access."""
    kind, _, what = name.partition("_")[2].partition("_")
    if inst.idxen:
        raise UnsupportedInstruction(f"{name} with an index")
    locate, row = _locate_in_buffer(inst, name), vector_row(inst.vdata.offset, inst.acc)
    if kind == "LOAD" and what in _LOADS:
        size, how = _LOADS[what]
        if not inst.lds:
            return load_step(size, how, row, locate, _vm)
        if how == "words":
            return _load_to_lds(size, inst.offset, locate)
    if inst.lds:
        raise UnsupportedInstruction(f"{name} with LDS")
    if kind == "STORE" and what in _STORES:
        return store_step(*_STORES[what], row, locate, _vm)
    if kind == "ATOMIC" and what in _ATOMICS:
        return _atomic(what, row, row if inst.sc0 else None, locate)
    raise UnsupportedInstruction(name)


def _locate_in_buffer(inst: Instruction, name: str) -> Locate:
    descriptor, constant, offen = inst.srsrc.offset, inst.offset, inst.offen
    by_lane, scalar = operand_reader(inst.vaddr.offset, "u32"), operand_reader(inst.soffset.offset, "u32")

    def locate(w: Wave, size: int) -> Accesses:
        low, high, records, word3 = w.s[descriptor : descriptor + 4].tolist()
        if high >> 16 & 0x3FFF or high >> 31 or word3 >> 23 & 1:
            raise UnsupportedInstruction(f"{name} with a stride, swizzled or with the lane added")
        lanes = np.flatnonzero(w.m)
        at = np.full(len(lanes), constant, np.int64)
        if offen:
            # The sum has 32 bits (LLVM's pull request 152584 says since when it has more): an offset may be negative.
            at = at + by_lane(w)[lanes] & 0xFFFFFFFF
        at += int(scalar(w)[0])
        base = low | (high & 0xFFFF) << 32
        if not len(at) or int(at.max()) + size <= records:
            return Accesses(w.memory, lanes, at + base)
        # Each word is inside or outside by itself.
        inside = at[None] + np.arange(min(size, WORD), size + 1, WORD)[:, None] <= records
        return Accesses(w.memory, lanes, at + base, inside)

    return locate


def _load_to_lds(size: int, constant: int, locate: Locate) -> Step:
    """A buffer load whose words go to the LDS: lane after lane from M0 on, without the buffer's offset."""

    def step(w: Wave) -> None:
        accesses, start = locate(w, size), w.s.item(M0) & 0xFFFFF

        def access() -> None:
            w.lds.store(start + constant + accesses.lanes * size, size, accesses.load(size))

        w.issue(w.vm, access)

    return step


def vector_row(register: int, acc: bool) -> int:
    """Row of ``Wave.v`` of a register that holds data."""
    if register < VGPR:
        raise UnsupportedInstruction(f"data in the scalar register {register}")
    return register - VGPR + (ACC if acc else 0)


def load_step(size: int, how: str, row: int, locate: Locate, queue: Queue) -> Step:
    """Load ``size`` bytes per lane to registers from ``row`` on; ``how`` as in ``_LOADS``."""

    def step(w: Wave) -> None:
        accesses = locate(w, size)
        w.issue(queue(w), lambda: _write_loaded(w, row, how, size, accesses.load(size), accesses.lanes))

    return step


def store_step(size: int, high: bool, row: int, locate: Locate, queue: Queue) -> Step:
    """Store ``size`` bytes per lane from registers from ``row`` on; ``high``: of the upper half."""

    def step(w: Wave) -> None:
        accesses = locate(w, size)
        values = w.v[row : row + max(1, size // WORD), accesses.lanes]
        if high:
            values >>= np.uint32(16)
        w.issue(queue(w), lambda: accesses.store(size, values))

    return step


def _atomic(operation: str, row: int, back: int | None, locate: Locate) -> Step:
    """An atomic access with data from ``row`` on; ``back``: where the old content goes."""
    words, operands, _ = _ATOMICS[operation]

    def step(w: Wave) -> None:
        accesses = locate(w, words * WORD)
        data = w.v[row : row + operands, accesses.lanes]

        def access() -> None:
            before = accesses.update(operation, data)
            if back is not None:
                w.write(back, before, accesses.lanes)

        w.issue(w.vm, access, is_atomic=True)

    return step


def _write_loaded(w: Wave, row: int, how: str, size: int, values: Array, lanes: Array) -> None:
    """Put what was loaded into registers of the active lanes."""
    if how == "sign":
        bits = 32 - 8 * size
        values = (values.view(np.int32) << bits >> bits).view(np.uint32)
    elif how == "high":
        values = w.v[row, lanes] & np.uint32(0xFFFF) | values << np.uint32(16)
    elif how == "low":
        values = w.v[row, lanes] & np.uint32(0xFFFF0000) | values
    w.write(row, values, lanes)


def _add_packed_bf16(old: Array, add: Array) -> Array:
    def float_of(word: Array, high: bool) -> Array:
        return (word & np.uint32(0xFFFF0000) if high else word << np.uint32(16)).view(np.float32)

    low, high = (bf16(float_of(old, half) + float_of(add, half)) for half in (False, True))
    return low | high << np.uint32(16)
