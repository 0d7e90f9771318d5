"""Instructions that read and write memory: scalar loads, buffers, global memory, scratch.

An instruction takes addresses and data from registers when it is issued. The access itself happens at the wait for it,
or at once (``Waves.issue``).
"""

import re
from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from amdgpu_emulator import floats
from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import MemoryFault, UnsupportedInstruction
from amdgpu_emulator.memory import PRIVATE_BASE, WORD_BYTES, Accesses, Array
from amdgpu_emulator.operands import ACC, VGPR, joined, operand_reader, split
from amdgpu_emulator.publication import INVALIDATES, WRITES_BACK
from amdgpu_emulator.scalar_instructions import scalar_write
from amdgpu_emulator.vector_operations import bf16, of_bf16
from amdgpu_emulator.wave import (
    LANES,
    M0,
    NO_DATA,
    SGPR_PAIRS,
    SGPRS,
    UNWRITTEN_WORD,
    UNWRITTEN_WORDS,
    Pending,
    Step,
    Transfer,
    Waves,
)

SCRATCH_WORD = 1 << 31 | 0x5C7A
"""The second word of the descriptor of scratch memory, by which it is known; gfx90a has no other way to it."""
_NO_SCALAR = (124, 127)
"""Codes of the scalar address that mean none."""
LOADS = {
    **{name: (words * WORD_BYTES, "words") for words, name in enumerate(("DWORD", "DWORDX2", "DWORDX3", "DWORDX4"), 1)},
    "UBYTE": (1, "zero"), "SBYTE": (1, "sign"), "USHORT": (2, "zero"), "SSHORT": (2, "sign"), "SHORT_D16": (2, "low"),
    "SHORT_D16_HI": (2, "high"), "UBYTE_D16": (1, "low"), "UBYTE_D16_HI": (1, "high"),
    "SBYTE_D16": (1, "signed low"), "SBYTE_D16_HI": (1, "signed high"),
}  # fmt: skip
"""Bytes of a load, and what becomes of the register: words, a byte or half extended, or half of a word replaced."""
STORES = {
    **{name: (words * WORD_BYTES, False) for words, name in enumerate(("DWORD", "DWORDX2", "DWORDX3", "DWORDX4"), 1)},
    "BYTE": (1, False), "SHORT": (2, False), "BYTE_D16_HI": (1, True), "SHORT_D16_HI": (2, True),
}  # fmt: skip
"""Bytes of a store, and whether they come from the upper half."""
Atomic = tuple[int, int, Callable[[Array, Array], Array]]
"""Words in memory, words of data, and what an atomic access makes of them."""


def _of_type(kind: str, compute: Callable[[Array, Array], Array]) -> Atomic:
    """Return an atomic access that combines what is in memory with a number of one type."""
    words = int(kind[1:]) // WORD_BYTES

    def run(old: Array, data: Array) -> Array:
        if words == 1:
            return compute(old.view(kind), data.view(kind)).view(np.uint32)
        before, operand = (joined(*part).view(kind) for part in (old, data))
        return np.stack(split(compute(before, operand)))

    return words, words, run


_OF_INTEGERS: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "ADD": ("u", np.add), "SUB": ("u", np.subtract), "RSUB": ("u", lambda old, new: new - old),
    "UMIN": ("u", np.minimum), "UMAX": ("u", np.maximum), "SMIN": ("i", np.minimum), "SMAX": ("i", np.maximum),
    "AND": ("u", np.bitwise_and), "OR": ("u", np.bitwise_or), "XOR": ("u", np.bitwise_xor),
    "SWAP": ("u", lambda old, new: new),
    "INC": ("u", lambda old, most: np.where(old >= most, old.dtype.type(0), old + old.dtype.type(1))),
    "DEC": ("u", lambda old, most: np.where((old == 0) | (old > most), most, old - old.dtype.type(1))),
}  # fmt: skip
ATOMICS: dict[str, Atomic] = {
    **{
        f"{name}{suffix}": _of_type(f"{kind}{size}", compute)
        for name, (kind, compute) in _OF_INTEGERS.items()
        for suffix, size in (("", 4), ("_X2", 8))
    },
    **{
        f"{name}_F{8 * size}": _of_type(f"f{size}", compute)
        for name, compute in (("ADD", np.add), ("MIN", floats.minimum), ("MAX", floats.maximum))
        for size in (4, 8)
    },
    "PK_ADD_F16": (1, 1, lambda old, add: (old.view(np.float16) + add.view(np.float16)).view(np.uint32)),
    "PK_ADD_BF16": (1, 1, lambda old, add: bf16(of_bf16(old) + of_bf16(add)).astype(np.uint16).view(np.uint32)),
    "CMPSWAP": (1, 2, lambda old, data: np.where(old == data[1:], data[:1], old)),
    "CMPSWAP_X2": (2, 4, lambda old, data: np.where((old == data[2:]).all(axis=0), data[:2], old)),
}
"""A swap on a condition has the new value before the old one."""


Locate = Callable[[Waves, int], Accesses]
"""Where waves access so many bytes per lane, by their registers as they are now."""
Queue = Callable[[Waves], Pending]
_vm: Queue = attrgetter("vm")


def translate_scalar_load(inst: Instruction) -> Step:
    """Translate ``s_load_dword...`` and ``s_memtime``."""
    if inst.name in ("S_MEMTIME", "S_MEMREALTIME"):
        return _clock(inst)
    match = re.fullmatch(r"S_LOAD_DWORD(?:X(\d+))?", inst.name)
    if not match:
        raise UnsupportedInstruction(inst.name)
    count, target, base = int(match[1] or 1), inst.sdata, inst.sbase
    offset = inst.offset if inst.imm else 0
    index = inst.soffset if inst.soffset_en else None
    if not inst.imm:
        index = inst.offset & 0x7F

    def complete(w: Waves, transfer: Transfer) -> None:
        w.s_by_wave[:, target : target + count] = transfer.places[0].load(count * WORD_BYTES).T

    def step(w: Waves) -> None:
        at = w.si64[base // 2 :: SGPR_PAIRS] + offset
        if index is not None:
            at = at + w.s[index::SGPRS]
        w.s_by_wave[:, target : target + count] = UNWRITTEN_WORD
        # As the lowest lane of each wave.
        w.issue(w.scalar, Transfer((Accesses(w.memory, w.every[::LANES], at & ~3),), complete))

    return step


def _clock(inst: Instruction) -> Step:
    """Translate ``s_memtime``: there is no time, so it counts how often it was read."""
    put = scalar_write(inst.sdata, 64)
    return lambda w: put(w, [next(w.memory.clock) for _ in range(w.count)])


def translate_global(inst: Instruction) -> Step:
    """Translate ``global_...``, and ``flat_...`` of global memory."""
    scalar, offset = inst.saddr, inst.offset
    wide, narrow = operand_reader(inst.addr, "u64"), operand_reader(inst.addr, "u32")
    is_flat = inst.form == "FLAT"
    has_scalar = scalar not in _NO_SCALAR and not is_flat

    def locate(w: Waves, size: int) -> Accesses:
        lanes = w.active()
        if has_scalar:
            at = narrow(w)[lanes].astype(np.int64) + _of_lanes(w.spread(w.si64[scalar // 2 :: SGPR_PAIRS]), lanes)
        else:
            at = wide(w)[lanes].astype(np.int64)
        if is_flat:
            own = at >> 32 == PRIVATE_BASE >> 32
            if own.any():
                # Memory of a lane, which lies with that of the others.
                at[own] = PRIVATE_BASE - offset + _in_scratch(w, lanes[own], (at[own] & 0xFFFFFFFF) + offset).at
        return Accesses(w.memory, lanes, at + offset)

    what = inst.name.partition("_")[2]
    if what.startswith("LOAD_LDS_DWORD"):
        return _load_to_lds(LOADS[what.removeprefix("LOAD_LDS_")][0], offset, locate)
    return _with_registers(inst, locate)


def translate_scratch(inst: Instruction) -> Step:
    """Translate ``scratch_...``: private memory of each lane."""
    offset, base = inst.offset, inst.saddr
    by_lane = operand_reader(inst.addr, "u32") if inst.sve else None

    def locate(w: Waves, size: int) -> Accesses:
        lanes = w.active()
        at = np.full(len(lanes), offset, np.int64)
        if base not in _NO_SCALAR:
            at += _of_lanes(w.spread(w.s[base::SGPRS]), lanes)
        if by_lane is not None:
            at += by_lane(w)[lanes]
        return _in_scratch(w, lanes, at)

    return _with_registers(inst, locate)


def _in_scratch(w: Waves, lanes: Array, at: Array) -> Accesses:
    """Return where lanes access their own memory, of which each has the same size."""
    lane_bytes = len(w.scratch.u8) // (LANES * w.group.waves)
    outside = (at < 0) | (at >= lane_bytes)
    if outside.any():
        lane = int(np.flatnonzero(outside)[0])
        raise MemoryFault(f"scratch at {int(at[lane])}, of which a lane has {lane_bytes} bytes", int(lanes[lane]))
    return Accesses(w.scratch, lanes, at + (LANES * w.waves_of(lanes) + lanes % LANES) * lane_bytes)


def _with_registers(inst: Instruction, locate: Locate) -> Step:
    registers = (inst.vdata, inst.vdata) if inst.form == "MUBUF" else (inst.data, inst.vdst)
    data, back = (vector_row(register, inst.acc) for register in registers)
    gives_back = "LOAD" in inst.name or inst.sc0
    return access_step(inst.name, [data], back if gives_back else None, [locate], _vm, inst.sc0 | inst.sc1 << 1)


def translate_buffer(inst: Instruction) -> Step:
    """Translate ``buffer_...``: through a descriptor, which bounds the access."""
    if inst.idxen:
        raise UnsupportedInstruction(f"{inst.name} with an index")
    if inst.name in ("BUFFER_WBL2", "BUFFER_INV"):
        return _cache_step(inst)
    if not inst.lds:
        return _with_registers(inst, _locate_in_buffer(inst))
    size, how = LOADS.get(inst.name.removeprefix("BUFFER_LOAD_"), (0, ""))
    if how != "words":
        raise UnsupportedInstruction(f"{inst.name} with LDS")
    return _load_to_lds(size, inst.offset, _locate_in_buffer(inst))


def _locate_in_buffer(inst: Instruction) -> Locate:
    descriptor, constant, offen = inst.srsrc, inst.offset, inst.offen
    by_lane, scalar = operand_reader(inst.vaddr, "u32"), operand_reader(inst.soffset, "u32")

    def locate(w: Waves, size: int) -> Accesses:
        words = w.s_by_wave[:, descriptor : descriptor + 4]
        lanes = w.active()
        at = np.full(len(lanes), constant, np.int64)
        if any(high >> 16 & 0x3FFF or high >> 31 or word3 >> 23 & 1 for _, high, _, word3 in words.tolist()):
            if not (words[:, 1] == SCRATCH_WORD).all():
                raise UnsupportedInstruction(f"{inst.name} with a stride, swizzled or with the lane added")
            # Offsets of a wave count the bytes of all its lanes.
            at += (by_lane(w)[lanes] if offen else 0) + _of_lanes(scalar(w).astype(np.int64), lanes) // LANES
            return _in_scratch(w, lanes, at)
        if offen:
            # The sum has 32 bits (LLVM's pull request 152584 says since when it has more): an offset may be negative.
            at = at + by_lane(w)[lanes] & 0xFFFFFFFF
        at += _of_lanes(scalar(w), lanes)
        base = _of_lanes(w.spread(w.si64[descriptor // 2 :: SGPR_PAIRS] & (1 << 48) - 1), lanes)
        records = _of_lanes(w.spread(words[:, 2].astype(np.int64)), lanes)
        if not len(at) or int(at.max()) + size <= int(records.min()):
            return Accesses(w.memory, lanes, at + base)
        # Each word is inside or outside by itself.
        inside = at[None] + np.arange(min(size, WORD_BYTES), size + 1, WORD_BYTES)[:, None] <= records
        return Accesses(w.memory, lanes, at + base, inside)

    return locate


def _load_to_lds(size: int, constant: int, locate: Locate) -> Step:
    """Translate a load whose words go to the LDS: lane after lane from M0 on, with the instruction's offset alone."""

    def complete(_: Waves, transfer: Transfer) -> None:
        source, target = transfer.places
        target.store(size, source.load(size))

    def step(w: Waves) -> None:
        source = locate(w, size)
        start = (w.s[M0::SGPRS] & 0xFFFFF).astype(np.int64)[source.lanes // LANES]
        target = Accesses(w.lds, source.lanes, start + constant + source.lanes % LANES * size)
        w.issue(w.vm, Transfer((source, target), complete))

    return step


def _of_lanes(values: Array, lanes: Array) -> Array:
    """Return the values of some lanes, from one a lane; one value for all stays as it is."""
    return values if len(values) == 1 else values[lanes]


def vector_row(register: int, acc: bool) -> int:
    """Return the row of ``Waves.v`` of a register that holds data."""
    if register < VGPR:
        raise UnsupportedInstruction(f"data in the scalar register {register}")
    return register - VGPR + (ACC if acc else 0)


def access_step(
    name: str, data: Sequence[int], back: int | None, places: Sequence[Locate], queue: Queue, scope: int = 0
) -> Step:
    """Return a load, a store or an atomic access, by the name that it has in global memory.

    ``data`` are the first rows of registers that are stored, one for each of ``places``, or the operands of an atomic
    access. Loads of several places go to rows from ``back`` on, one behind the other. ``back`` is ``None`` if what was
    in memory is not wanted.
    """
    kind, _, what = name.partition("_")[2].partition("_")
    if kind == "LOAD" and what in LOADS and back is not None:
        return _load_step(*LOADS[what], back, places, queue, scope)
    if kind == "STORE" and what in STORES:
        return _store_step(*STORES[what], data, places, queue, scope)
    if kind == "ATOMIC" and what in ATOMICS:
        return _atomic_step(what, data, back, places[0], queue)
    raise UnsupportedInstruction(name)


def issued(
    places: Sequence[Locate], size: int, queue: Queue, complete: Callable[[Waves, Transfer], None],
    rows: Sequence[int] = (), poisoned: range = range(0), atomic: str = "", scope: int = 0,
) -> Step:  # fmt: skip
    """Return the step that issues an access of ``size`` bytes per lane to each place, as the registers are now.

    ``rows`` are the registers that are stored; those ``poisoned`` hold no data until the access is completed.
    """
    is_run = bool(rows) and [*rows] == [*range(rows[0], rows[-1] + 1)]
    sources = slice(rows[0], rows[-1] + 1) if is_run else [*rows]

    def step(w: Waves) -> None:
        located = tuple([locate(w, size) for locate in places])
        lanes = located[0].lanes
        data = (w.v[sources].copy() if lanes is w.every else w.v[sources][:, lanes]) if rows else NO_DATA
        if poisoned:
            w.write(poisoned.start, UNWRITTEN_WORDS[: len(poisoned)], lanes)
        w.issue(queue(w), Transfer(located, complete, data, atomic, scope))

    return step


def _load_step(size: int, how: str, row: int, places: Sequence[Locate], queue: Queue, scope: int) -> Step:
    """Load ``size`` bytes per lane and place to registers from ``row`` on; ``how`` as in ``LOADS``."""
    words = max(1, size // WORD_BYTES)
    poisoned = range(row, row + (0 if how.endswith(("low", "high")) else words * len(places)))

    def complete(w: Waves, transfer: Transfer) -> None:
        for number, accesses in enumerate(transfer.places):
            _write_loaded(w, row + words * number, how, size, accesses.load(size), accesses.lanes)

    return issued(places, size, queue, complete, poisoned=poisoned, scope=scope)


def _store_step(size: int, high: bool, rows: Sequence[int], places: Sequence[Locate], queue: Queue, scope: int) -> Step:
    """Store ``size`` bytes per lane to each place, from registers from one of ``rows`` on; ``high``: its upper half."""
    words = max(1, size // WORD_BYTES)

    def complete(_: Waves, transfer: Transfer) -> None:
        values = transfer.data >> np.uint32(16) if high else transfer.data
        for number, accesses in enumerate(transfer.places):
            accesses.store(size, values[words * number : words * (number + 1)])

    return issued(places, size, queue, complete, [row + word for row in rows for word in range(words)], scope=scope)


def _cache_step(inst: Instruction) -> Step:
    """Write back or invalidate caches. Memory here is coherent: it only orders accesses for the check of races."""
    writes_back = inst.name == "BUFFER_WBL2"
    what, scope = WRITES_BACK if writes_back else INVALIDATES, inst.sc0 | inst.sc1 << 1

    def step(w: Waves) -> None:
        # As an access of no lane; waits wait for what writes back.
        nowhere = Accesses(w.memory, w.every[:0], w.every[:0])
        w.issue(w.vm if writes_back else None, Transfer((nowhere,), lambda *_: None, atomic=what, scope=scope))

    return step


def _atomic_step(operation: str, rows: Sequence[int], back: int | None, locate: Locate, queue: Queue) -> Step:
    """Return an atomic access with data in ``rows``, or from one row on; ``back`` is where the old content goes."""
    words, operands, compute = ATOMICS[operation]
    size = words * WORD_BYTES
    sources = [row + word for row in rows for word in range(operands // len(rows))]

    def complete(w: Waves, transfer: Transfer) -> None:
        accesses, data = transfer.places[0], transfer.data
        before = np.zeros((words, len(accesses.at)), np.uint32)
        for lanes in _in_turn(accesses, size):
            own, kept = accesses.of_lanes(lanes, accesses.lanes[lanes]), data[:, lanes]
            before[:, lanes] = old = own.memory.load(own.at, size, own.lanes)
            own.memory.store(own.at, size, compute(old, kept), own.lanes)
        if back is not None:
            w.write(back, before, accesses.lanes)

    return issued([locate], size, queue, complete, sources, atomic=operation)


def _in_turn(accesses: Accesses, size: int) -> list[Array]:
    """Return the lanes inside that update memory at the same time: all, or one by one where two meet."""
    inside = np.arange(len(accesses.at)) if accesses.inside is None else np.flatnonzero(accesses.inside.all(axis=0))
    meet = (np.diff(np.sort(accesses.at[inside])) < size).any()
    return list(inside[:, None]) if meet else [inside]


def _write_loaded(w: Waves, row: int, how: str, size: int, values: Array, lanes: Array) -> None:
    """Put what was loaded into registers of the active lanes."""
    if how.startswith("sign"):
        bits = 32 - 8 * size
        values = (values.view(np.int32) << bits >> bits).view(np.uint32)
        if how != "sign":
            values, how = values & np.uint32(0xFFFF), how.removeprefix("signed ")
    if how == "high":
        values = w.v[row, lanes] & np.uint32(0xFFFF) | values << np.uint32(16)
    elif how == "low":
        values = w.v[row, lanes] & np.uint32(0xFFFF0000) | values
    w.write(row, values, lanes)
