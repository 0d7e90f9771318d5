"""Instructions of the LDS: loads, stores, a transposing load, and exchanges between lanes."""

from collections.abc import Callable
from operator import attrgetter

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import WORD_BYTES, Accesses, Array
from amdgpu_emulator.memory_instructions import Locate, Queue, atomic_step, load_step, store_step, vector_row
from amdgpu_emulator.operands import operand_reader
from amdgpu_emulator.wave import LANES, UNWRITTEN_WORDS, Step, Transfer, Waves

_LDS_LOADS = {
    "READ_B32": (4, "words"), "READ_B64": (8, "words"), "READ_B96": (12, "words"), "READ_B128": (16, "words"),
    "READ_U8": (1, "zero"), "READ_I8": (1, "sign"), "READ_U16": (2, "zero"), "READ_I16": (2, "sign"),
    "READ_U16_D16": (2, "low"), "READ_U16_D16_HI": (2, "high"), "READ_U8_D16": (1, "low"),
    "READ_U8_D16_HI": (1, "high"),
}  # fmt: skip
_LDS_STORES = {
    "WRITE_B32": (4, False), "WRITE_B64": (8, False), "WRITE_B96": (12, False), "WRITE_B128": (16, False),
    "WRITE_B8": (1, False), "WRITE_B16": (2, False), "WRITE_B8_D16_HI": (1, True), "WRITE_B16_D16_HI": (2, True),
}  # fmt: skip
_LDS_ATOMICS = {
    "ADD_U32": "ADD", "SUB_U32": "SUB", "MIN_I32": "SMIN", "MAX_I32": "SMAX", "MIN_U32": "UMIN", "MAX_U32": "UMAX",
    "AND_B32": "AND", "OR_B32": "OR", "XOR_B32": "XOR", "WRXCHG_B32": "SWAP", "ADD_F32": "ADD_F32",
    "PK_ADD_F16": "PK_ADD_F16", "PK_ADD_BF16": "PK_ADD_BF16",
}  # fmt: skip
"""What the atomic accesses are called in other memory."""
_TWO = {"2_B32": (1, 4), "2_B64": (2, 8), "2ST64_B32": (1, 256), "2ST64_B64": (2, 512)}
"""Words of each of two accesses, and the bytes that an offset counts."""
Address = Callable[[Waves], Array]
_lgkm: Queue = attrgetter("lgkm")


def translate_lds(inst: Instruction, name: str) -> Step:
    """Translate ``ds_...``."""
    what, acc = name.removeprefix("DS_"), bool(inst.acc)
    address, offset = operand_reader(inst.addr.offset, "u32"), inst.offset0 | inst.offset1 << 8
    if what in _LDS_LOADS:
        return load_step(*_LDS_LOADS[what], vector_row(inst.vdst.offset, acc), _locate(address, offset), _lgkm)
    if what in _LDS_STORES:
        return store_step(*_LDS_STORES[what], vector_row(inst.data0.offset, acc), _locate(address, offset), _lgkm)
    if (plain := what.replace("_RTN_", "_")) in _LDS_ATOMICS:
        back = vector_row(inst.vdst.offset, acc) if plain != what else None
        row = vector_row(inst.data0.offset, acc)
        return atomic_step(_LDS_ATOMICS[plain], row, back, _locate(address, offset), _lgkm)
    words, unit = _TWO.get(what.removeprefix("READ").removeprefix("WRITE"), (0, 0))
    both = [_locate(address, inst.offset0 * unit), _locate(address, inst.offset1 * unit)]
    if words and what.startswith("READ"):
        return _load_two(words, vector_row(inst.vdst.offset, acc), both)
    if words:
        return _store_two(words, [vector_row(data.offset, acc) for data in (inst.data0, inst.data1)], both)
    if what == "READ_B64_TR_B16":
        return _load_transposed(address, offset, vector_row(inst.vdst.offset, acc))
    if what in ("BPERMUTE_B32", "PERMUTE_B32"):
        rows = vector_row(inst.data0.offset, acc), vector_row(inst.vdst.offset, acc)
        return _permute(address, offset, *rows, is_backward=what.startswith("B"))
    raise UnsupportedInstruction(name)


def _locate(address: Address, offset: int) -> Locate:
    def locate(w: Waves, size: int) -> Accesses:
        lanes = w.active()
        # The sum has 32 bits: a negative address with an offset is inside.
        return Accesses(w.lds, lanes, (address(w)[lanes] + np.uint32(offset)).astype(np.int64))

    return locate


def _load_two(words: int, row: int, places: list[Locate]) -> Step:
    def complete(w: Waves, transfer: Transfer) -> None:
        for part, accesses in enumerate(transfer.places):
            w.write(row + part * words, accesses.load(words * WORD_BYTES), accesses.lanes)

    def step(w: Waves) -> None:
        both = tuple(locate(w, words * WORD_BYTES) for locate in places)
        w.write(row, UNWRITTEN_WORDS[: 2 * words], both[0].lanes)
        w.issue(w.lgkm, Transfer(both, complete))

    return step


def _store_two(words: int, rows: list[int], places: list[Locate]) -> Step:
    def complete(_: Waves, transfer: Transfer) -> None:
        for accesses, values in zip(transfer.places, np.split(transfer.data, 2), strict=True):
            accesses.store(words * WORD_BYTES, values)

    def step(w: Waves) -> None:
        both = tuple(locate(w, words * WORD_BYTES) for locate in places)
        values = np.concatenate([w.v[row : row + words, both[0].lanes] for row in rows])
        w.issue(w.lgkm, Transfer(both, complete, values))

    return step


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
