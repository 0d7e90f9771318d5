"""Instructions that read and write memory: scalar loads, buffers, global memory, scratch, LDS.

An instruction takes addresses and data from registers when it is issued. The access itself happens at the wait for it,
or at once (``Wave.issue``).
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tileseer.devices.emulated.faults import EmulationFault, NotExecutable
from tileseer.devices.emulated.memory import WORD, Block, Memory
from tileseer.devices.emulated.operands import ACC, VGPR, read
from tileseer.devices.emulated.vector_table import bf16
from tileseer.devices.emulated.wave import LANES, M0, Array, Wave

Step = Callable[[Wave], None]
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
_DS_LOADS = {
    "READ_B32": (4, "words"), "READ_B64": (8, "words"), "READ_B96": (12, "words"), "READ_B128": (16, "words"),
    "READ_U8": (1, "zero"), "READ_I8": (1, "sign"), "READ_U16": (2, "zero"), "READ_I16": (2, "sign"),
    "READ_U16_D16": (2, "low"), "READ_U16_D16_HI": (2, "high"), "READ_U8_D16": (1, "low"),
    "READ_U8_D16_HI": (1, "high"),
}  # fmt: skip
_DS_STORES = {
    "WRITE_B32": (4, False), "WRITE_B64": (8, False), "WRITE_B96": (12, False), "WRITE_B128": (16, False),
    "WRITE_B8": (1, False), "WRITE_B16": (2, False), "WRITE_B8_D16_HI": (1, True), "WRITE_B16_D16_HI": (2, True),
}  # fmt: skip
_TWO = {"READ2_B32": (1, 4), "READ2_B64": (2, 8), "READ2ST64_B32": (1, 256), "READ2ST64_B64": (2, 512)}
"""Words of each of two reads, and the bytes that an offset counts; the writes are alike."""
_ATOMICS: dict[str, tuple[int, int, Callable[[Array, Array], Array]]] = {
    "ADD_F32": (1, 1, lambda old, add: (old.view(np.float32) + add.view(np.float32)).view(np.uint32)),
    "ADD": (1, 1, lambda old, add: old + add),
    "PK_ADD_F16": (1, 1, lambda old, add: (old.view(np.float16) + add.view(np.float16)).view(np.uint32)),
    "PK_ADD_BF16": (1, 1, lambda old, add: _packed_bf16(old, add)),
    "CMPSWAP": (1, 2, lambda old, data: data[:1] if old == data[1:] else old),
    "CMPSWAP_X2": (2, 4, lambda old, data: data[:2] if (old == data[2:]).all() else old),
}
"""Words in memory, words of data, and what an atomic access makes of them; a swap has the new value before the old."""


def _packed_bf16(old: Array, add: Array) -> Array:
    def float_of(word: Array, high: bool) -> Array:
        return (word & np.uint32(0xFFFF0000) if high else word << np.uint32(16)).view(np.float32)

    low, high = (bf16(float_of(old, half) + float_of(add, half)) for half in (False, True))
    return low | high << np.uint32(16)


def _row(register: int, acc: bool) -> int:
    if register < VGPR:
        raise NotExecutable(f"data in the scalar register {register}")
    return register - VGPR + (ACC if acc else 0)


def _place(w: Wave, row: int, how: str, size: int, value: Array, lanes: Array) -> None:
    """Put what was loaded into registers of the active lanes."""
    if how == "words":
        w.write(row, value, lanes)
        return
    if how == "sign":
        bits = 32 - 8 * size
        value = (value.view(np.int32) << bits >> bits).view(np.uint32)
    elif how != "zero":
        old = w.v[row, lanes]
        value = (
            old & np.uint32(0xFFFF) | value << np.uint32(16) if how == "high" else old & np.uint32(0xFFFF0000) | value
        )
    w.write(row, value[None], lanes)


def _load(block: Block | Memory, at: Array, size: int, how: str) -> Array:
    return block.words(at, size // WORD) if how == "words" else block.small(at, size)


def _data(w: Wave, row: int, size: int, high: bool, lanes: Array) -> Array:
    """What a store takes from registers, for the active lanes."""
    if size >= WORD:
        return w.v[row : row + size // WORD, lanes]
    value = w.v[row, lanes]
    return value >> np.uint32(16) if high else value


def _store(block: Block | Memory, at: Array, size: int, value: Array) -> None:
    if size >= WORD:
        block.set_words(at, value)
    else:
        block.set_small(at, size, value)


def _update_atomically(block: Memory, at: Array, what: str, data: Array) -> Array:
    """Change memory lane after lane; what was there before each: words [rows, lanes]."""
    words, _, compute = _ATOMICS[what]
    before = np.empty((words, len(at)), np.uint32)
    for lane in range(len(at)):
        place = at[lane : lane + 1]
        old = np.ascontiguousarray(block.words(place, words)[:, 0])
        before[:, lane] = old
        block.set_words(place, compute(old, np.ascontiguousarray(data[:, lane]))[:, None])
    return before


def _clock(inst: Any) -> Step:
    """``s_memtime``: there is no time, so it counts how often it was asked for."""
    target = inst.sdata.offset // 2

    def step(w: Wave) -> None:
        w.s64[target] = next(w.memory.clock)

    return step


def scalar_load(inst: Any) -> Step:
    """``s_load_dword...``, and ``s_memtime``."""
    if inst.op.name == "S_MEMTIME":
        return _clock(inst)
    match = re.fullmatch(r"S_LOAD_DWORD(?:X(\d+))?", inst.op.name)
    if not match:
        raise NotExecutable(inst.op.name)
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

        w.issue(w.lgkm, access)

    return step


def global_(inst: Any) -> Step:
    """``global_...`` and ``flat_...`` of global memory."""
    name = inst.op.name.partition("_")[2]
    address, scalar = inst.addr.offset, inst.saddr.offset
    offset = inst.offset
    if type(inst).__name__ == "GLOBAL":
        offset -= (offset & 1 << 12) << 1
    wide = read(address, "u64")
    narrow = read(address, "u32")
    no_scalar = scalar in (124, 127) or type(inst).__name__ == "FLAT"

    def places(w: Wave) -> tuple[Array, Array]:
        lanes = np.flatnonzero(w.m)
        if no_scalar:
            at = wide(w)[lanes].astype(np.int64)
        else:
            at = narrow(w)[lanes].astype(np.int64) + w.s64.item(scalar // 2)
        return lanes, at + offset

    kind, _, what = name.partition("_")
    if kind == "ATOMIC" and what in _ATOMICS:
        return _updated(inst, what, places)
    return _moved(inst, name, places, lambda w: w.memory)


def _moved(
    inst: Any, name: str, places: Callable[[Wave], tuple[Array, Array]], block: Callable[[Wave], Block | Memory]
) -> Step:
    """A load or store at the places that a function gives."""
    kind, _, what = name.partition("_")
    if kind == "LOAD" and what in _LOADS:
        size, how = _LOADS[what]
        row = _row(inst.vdst.offset, inst.acc)

        def load(w: Wave) -> None:
            lanes, at = places(w)
            w.issue(w.vm, lambda: _place(w, row, how, size, _load(block(w), at, size, how), lanes))

        return load
    if kind == "STORE" and what in _STORES:
        size, high = _STORES[what]
        row = _row(inst.data.offset, inst.acc)

        def store(w: Wave) -> None:
            lanes, at = places(w)
            value = _data(w, row, size, high, lanes)
            w.issue(w.vm, lambda: _store(block(w), at, size, value))

        return store
    raise NotExecutable(inst.op.name)


def _updated(inst: Any, what: str, places: Callable[[Wave], tuple[Array, Array]]) -> Step:
    """An atomic access at the places that a function gives."""
    operands, row = _ATOMICS[what][1], _row(inst.data.offset, inst.acc)
    back = _row(inst.vdst.offset, inst.acc) if inst._raw >> 16 & 1 else None

    def atomic(w: Wave) -> None:
        lanes, at = places(w)
        data = w.v[row : row + operands, lanes]

        def access() -> None:
            before = _update_atomically(w.memory, at, what, data)
            if back is not None:
                w.write(back, before, lanes)

        w.issue(w.vm, access)

    return atomic


def scratch(inst: Any) -> Step:
    """``scratch_...``: private memory of each lane."""
    name = inst.op.name.partition("_")[2]
    offset = inst.offset - ((inst.offset & 1 << 12) << 1)
    base = inst.saddr.offset
    by_lane = read(inst.addr.offset, "u32") if inst.sve else None

    def places(w: Wave) -> tuple[Array, Array]:
        lanes = np.flatnonzero(w.m)
        start = offset + (w.s.item(base) if base not in (124, 127) else 0)
        at = np.full(len(lanes), start, np.int64)
        if by_lane is not None:
            at += by_lane(w)[lanes].astype(np.int64)
        size = len(w.scratch.u8) // LANES
        if len(at) and not (at.min() >= 0 and at.max() < size):
            raise EmulationFault(f"scratch at {int(at.max())}, of which a lane has {size} bytes")
        return lanes, at + lanes * size

    return _moved(inst, name, places, lambda w: w.scratch)


def buffer(inst: Any) -> Step:
    """``buffer_...``: through a descriptor, which bounds the access."""
    name = inst.op.name.partition("_")[2]
    kind, _, what = name.partition("_")
    if inst.idxen:
        raise NotExecutable(f"{inst.op.name} with an index")
    descriptor, constant, offen = inst.srsrc.offset, inst.offset, inst.offen
    by_lane = read(inst.vaddr.offset, "u32")
    scalar = read(inst.soffset.offset, "u32")

    def places(w: Wave, size: int) -> tuple[Array, Array, Array]:
        """Active lanes, their addresses, and which bytes of the buffer they are at."""
        low, high, records, word3 = (w.s.item(descriptor + i) for i in range(4))
        if high >> 16 & 0x3FFF or high >> 31 or word3 >> 23 & 1:
            raise NotExecutable(f"{inst.op.name} with a stride, swizzled or with the lane added")
        lanes = np.flatnonzero(w.m)
        at = np.full(len(lanes), constant, np.int64)
        if offen:
            # The sum has 32 bits (LLVM's pull request 152584 says since when it has more): an offset may be negative.
            at = at + by_lane(w)[lanes] & 0xFFFFFFFF
        at += int(scalar(w)[0])
        base = low | (high & 0xFFFF) << 32
        # Each word is inside or outside by itself.
        inside = at[None] + np.arange(min(size, WORD), size + 1, WORD)[:, None] <= records
        return lanes, at + base, inside

    if kind == "LOAD" and what in _LOADS:
        size, how = _LOADS[what]
        row = _row(inst.vdata.offset, inst.acc)
        to_lds = inst.lds

        def load(w: Wave) -> None:
            lanes, at, inside = places(w, size)
            start = w.s.item(M0) if to_lds else 0

            def access() -> None:
                if inside.all():
                    value = _load(w.memory, at, size, how)
                else:
                    words = how == "words"
                    value = np.zeros((len(inside), len(at)), np.uint32)
                    for part, valid in enumerate(inside):
                        piece = at[valid] + WORD * part
                        value[part, valid] = w.memory.words(piece, 1)[0] if words else w.memory.small(piece, size)
                    value = value if words else value[0]
                if to_lds:
                    # Lane after lane from M0 on, without the buffer's offset.
                    w.lds.set_words((start & 0xFFFFF) + constant + lanes * size, value)
                else:
                    _place(w, row, how, size, value, lanes)

            w.issue(w.vm, access)

        return load
    if inst.lds:
        raise NotExecutable(f"{inst.op.name} with LDS")
    if kind == "STORE" and what in _STORES:
        size, high = _STORES[what]
        row = _row(inst.vdata.offset, inst.acc)

        def store(w: Wave) -> None:
            lanes, at, inside = places(w, size)
            value = _data(w, row, size, high, lanes)

            def access() -> None:
                if inside.all():
                    _store(w.memory, at, size, value)
                    return
                for part, valid in enumerate(inside):
                    if size >= WORD:
                        w.memory.set_words(at[valid] + WORD * part, value[part : part + 1, valid])
                    else:
                        w.memory.set_small(at[valid], size, value[valid])

            w.issue(w.vm, access)

        return store
    if kind == "ATOMIC" and what in _ATOMICS:
        (words, operands, _), row = _ATOMICS[what], _row(inst.vdata.offset, inst.acc)
        returns = inst.sc0

        def atomic(w: Wave) -> None:
            lanes, at, inside = places(w, words * WORD)
            valid = inside.all(axis=0)
            data = w.v[row : row + operands, lanes]

            def access() -> None:
                before = np.zeros((words, len(at)), np.uint32)
                before[:, valid] = _update_atomically(w.memory, at[valid], what, data[:, valid])
                if returns:
                    w.write(row, before, lanes)

            w.issue(w.vm, access)

        return atomic
    raise NotExecutable(inst.op.name)


def lds(inst: Any) -> Step:
    """``ds_...``."""
    what = inst.op.name.removeprefix("DS_")
    address = read(inst.addr.offset, "u32")
    offset = inst.offset0 | inst.offset1 << 8
    acc = bool(inst.acc)

    def places(w: Wave) -> tuple[Array, Array]:
        lanes = np.flatnonzero(w.m)
        return lanes, address(w)[lanes].astype(np.int64)

    if what in _DS_LOADS:
        size, how = _DS_LOADS[what]
        row = _row(inst.vdst.offset, acc)

        def load(w: Wave) -> None:
            lanes, at = places(w)
            at += offset
            w.issue(w.lgkm, lambda: _place(w, row, how, size, _load(w.lds, at, size, how), lanes))

        return load
    if what in _DS_STORES:
        size, high = _DS_STORES[what]
        row = _row(inst.data0.offset, acc)

        def store(w: Wave) -> None:
            lanes, at = places(w)
            at += offset
            value = _data(w, row, size, high, lanes)
            w.issue(w.lgkm, lambda: _store(w.lds, at, size, value))

        return store
    if what in _TWO:
        words, unit = _TWO[what]
        row, offsets = _row(inst.vdst.offset, acc), (inst.offset0 * unit, inst.offset1 * unit)

        def load_two(w: Wave) -> None:
            lanes, at = places(w)

            def access() -> None:
                for part, more in enumerate(offsets):
                    w.write(row + part * words, w.lds.words(at + more, words), lanes)

            w.issue(w.lgkm, access)

        return load_two
    if what.replace("WRITE", "READ") in _TWO:
        words, unit = _TWO[what.replace("WRITE", "READ")]
        rows = (_row(inst.data0.offset, acc), _row(inst.data1.offset, acc))
        offsets = (inst.offset0 * unit, inst.offset1 * unit)

        def store_two(w: Wave) -> None:
            lanes, at = places(w)
            values = [w.v[row : row + words, lanes] for row in rows]

            def access() -> None:
                for value, more in zip(values, offsets, strict=True):
                    w.lds.set_words(at + more, value)

            w.issue(w.lgkm, access)

        return store_two
    if what == "READ_B64_TR_B16":
        return _transposed(address, offset, _row(inst.vdst.offset, acc))
    if what in ("BPERMUTE_B32", "PERMUTE_B32"):
        return _permute(address, offset, _row(inst.data0.offset, acc), _row(inst.vdst.offset, acc), what[0] == "B")
    raise NotExecutable(inst.op.name)


def _transposed(address: Callable[[Wave], Array], offset: int, row: int) -> Step:
    """``ds_read_b64_tr_b16``: 16 lanes read 16 rows of four halves, and each gets a column of them."""
    lane = np.arange(LANES)
    sources = (lane & ~15)[None] + 4 * np.arange(4)[:, None] + ((lane & 15) >> 2)[None]

    def step(w: Wave) -> None:
        if not w.whole:
            raise NotExecutable("DS_READ_B64_TR_B16 with lanes disabled")
        at = address(w)[sources].astype(np.int64) + offset + 2 * (lane & 3)[None]

        def access() -> None:
            halves = np.stack([w.lds.small(part, 2) for part in at])
            w.v[row], w.v[row + 1] = halves[0] | halves[1] << 16, halves[2] | halves[3] << 16

        w.issue(w.lgkm, access)

    return step


def _permute(address: Callable[[Wave], Array], offset: int, data: int, target: int, backward: bool) -> Step:
    """``ds_bpermute_b32`` takes from the lane that an address names; ``ds_permute_b32`` gives to it."""

    def step(w: Wave) -> None:
        other = (address(w) + np.uint32(offset) >> np.uint32(2)) & np.uint32(63)
        values = np.where(w.m, w.v[data], np.uint32(0))
        if backward:
            result = values[np.broadcast_to(other, LANES)]
        else:
            result = np.zeros(LANES, np.uint32)
            result[other[w.m]] = values[w.m]
        lanes = np.flatnonzero(w.m)
        w.issue(w.lgkm, lambda: w.write(target, result[lanes][None], lanes))

    return step
