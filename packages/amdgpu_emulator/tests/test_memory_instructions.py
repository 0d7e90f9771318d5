"""Instructions that access memory, LDS and scratch, and exchange words between lanes."""

from __future__ import annotations

import numpy as np
import pytest
from amd_instructions import draw, execute, wave
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator.faults import EmulationFault
from amdgpu_emulator.wave import LANES

LDS_LOADS = {
    "DWORD": "B32", "DWORDX2": "B64", "DWORDX3": "B96", "DWORDX4": "B128", "UBYTE": "U8", "SBYTE": "I8",
    "USHORT": "U16", "SSHORT": "I16", "SHORT_D16": "U16_D16", "SHORT_D16_HI": "U16_D16_HI", "UBYTE_D16": "U8_D16",
    "UBYTE_D16_HI": "U8_D16_HI",
}  # fmt: skip
LDS_STORES = {
    "DWORD": "B32", "DWORDX2": "B64", "DWORDX3": "B96", "DWORDX4": "B128", "BYTE": "B8", "SHORT": "B16",
    "SHORT_D16_HI": "B16_D16_HI", "BYTE_D16_HI": "B8_D16_HI",
}  # fmt: skip
LDS_ATOMICS = {
    "ADD": "ADD_U32", "SUB": "SUB_U32", "SMIN": "MIN_I32", "UMIN": "MIN_U32", "SMAX": "MAX_I32", "UMAX": "MAX_U32",
    "AND": "AND_B32", "OR": "OR_B32", "XOR": "XOR_B32", "SWAP": "WRXCHG_B32", "ADD_F32": "ADD_F32",
    "PK_ADD_F16": "PK_ADD_F16", "PK_ADD_BF16": "PK_ADD_BF16",
}  # fmt: skip


def with_memory(size=4096):
    """A wave, and memory whose address is in s[4:6] and whose buffer descriptor is in s[4:8]."""
    w = wave(lds=4096)
    content = np.arange(size, dtype=np.uint32).astype(np.uint8)
    base = int(content.ctypes.data)
    w.memory.map(base, content, "test memory")
    w.s[4:8] = [base & 0xFFFFFFFF, base >> 32, size, 0x20000]
    return w, content


def buffer(w, name, data, **fields):
    execute(w, "MUBUF", ins.MUBUFOp[f"BUFFER_{name}"], vaddr=2, srsrc=1, soffset=128, offen=1, vdata=data, **fields)


def load(family, w, what, target):
    """Load to v[target] from the address in v[2] plus 8."""
    if family == "GLOBAL":
        execute(w, "GLOBAL", ins.GLOBALOp[f"GLOBAL_LOAD_{what}"], addr=2, saddr=4, vdst=target, offset=8)
    elif family == "BUFFER":
        buffer(w, f"LOAD_{what}", target, offset=8)
    else:
        execute(w, "DS", ins.DSOp[f"DS_READ_{LDS_LOADS[what]}"], addr=2, vdst=target, offset0=8)


def store(family, w, what, source):
    if family == "GLOBAL":
        execute(w, "GLOBAL", ins.GLOBALOp[f"GLOBAL_STORE_{what}"], addr=2, saddr=4, data=source, offset=8)
    elif family == "BUFFER":
        buffer(w, f"STORE_{what}", source, offset=8)
    else:
        execute(w, "DS", ins.DSOp[f"DS_WRITE_{LDS_STORES[what]}"], addr=2, data0=source, offset0=8)


def atomic(family, w, name):
    """An atomic with its operand in v[4:]; return where the value before is."""
    if family == "GLOBAL":
        execute(w, "GLOBAL", ins.GLOBALOp[f"GLOBAL_{name}"], addr=2, saddr=4, data=4, vdst=8, sc0=1)
        return 8
    if family == "DS":
        operation, _, type_ = LDS_ATOMICS[name.removeprefix("ATOMIC_")].rpartition("_")
        execute(w, "DS", ins.DSOp[f"DS_{operation}_RTN_{type_}"], addr=2, data0=4, vdst=8)
        return 8
    buffer(w, name, 4, sc0=1)
    return 4


def words_at(content, at, count):
    return content[at : at + 4 * count].view(np.uint32)


@pytest.mark.parametrize("family", ["GLOBAL", "BUFFER", "DS"])
def test_loads_and_stores_of_every_size(family):
    w, content = with_memory()
    at = np.arange(LANES, dtype=np.uint32) * 24 + 4
    w.v[2] = at
    w.lds.u8[:] = content
    memory = w.lds.u8 if family == "DS" else content
    for words, what in enumerate(("DWORD", "DWORDX2", "DWORDX3", "DWORDX4"), 1):
        load(family, w, what, 10)
        for lane in (0, 1, 63):
            assert (w.v[10 : 10 + words, lane] == words_at(memory, int(at[lane]) + 8, words)).all()
    first = memory[at + 8].astype(np.int64)
    half = first | memory[at + 9].astype(np.int64) << 8
    for what, want in (
        ("UBYTE", first),
        ("SBYTE", (first ^ 0x80) - 0x80),
        ("USHORT", half),
        ("SSHORT", (half ^ 0x8000) - 0x8000),
    ):
        load(family, w, what, 10)
        assert (w.v[10] == want % 2**32).all()
    for what, want in (
        ("SHORT_D16", 0x11110000 | half),
        ("SHORT_D16_HI", 0x1111 | half << 16),
        ("UBYTE_D16", 0x11110000 | first),
        ("UBYTE_D16_HI", 0x1111 | first << 16),
    ):
        w.v[10] = 0x11111111
        load(family, w, what, 10)
        assert (w.v[10] == want).all()
    w.set_exec(0b1011)
    for what, size, shift in (
        ("BYTE", 1, 0),
        ("SHORT", 2, 0),
        ("SHORT_D16_HI", 2, 16),
        ("BYTE_D16_HI", 1, 16),
        ("DWORD", 4, 0),
        ("DWORDX2", 8, 0),
        ("DWORDX3", 12, 0),
        ("DWORDX4", 16, 0),
    ):
        memory[:] = 0x77
        w.v[20:24] = draw(what, (4, LANES))
        store(family, w, what, 20)
        for lane in range(5):
            value = (
                (int(w.v[20, lane]) >> shift) if size < 4 else sum(int(w.v[20 + i, lane]) << 32 * i for i in range(4))
            )
            place = int(at[lane]) + 8
            written = int.from_bytes(memory[place : place + size].tobytes(), "little")
            assert written == (value % 256**size if lane in (0, 1, 3) else int("77" * size, 16)), (what, lane)
            assert memory[place + size] == 0x77


def test_a_buffer_ends_where_its_descriptor_says():
    w, content = with_memory()
    w.s[6] = 40
    w.v[2] = np.arange(LANES) * 8
    w.v[2, 9] = 0x80000000
    buffer(w, "LOAD_DWORDX4", 10)
    assert (w.v[10:14, 3] == words_at(content, 24, 4)).all()
    # Words are inside or outside one by one.
    assert w.v[10:14, 4].tolist() == [*words_at(content, 32, 2), 0, 0]
    assert not w.v[10:14, 5:].any()
    before = content.copy()
    w.v[10:14] = 0
    buffer(w, "STORE_DWORDX4", 10)
    assert not content[:40].any() and (content[40:] == before[40:]).all()
    # A negative offset of a lane and the instruction's own are added in 32 bits.
    w.v[2, 0], w.v[10:14, 0] = 0xFFFFFFF0, 7
    buffer(w, "STORE_DWORD", 10, offset=20)
    assert words_at(content, 4, 1)[0] == 7
    w.s[6], w.v[2, 3] = 8192, 5000
    with pytest.raises(EmulationFault, match="no memory that was allocated"):
        buffer(w, "LOAD_DWORD", 10)


def test_loads_into_lds():
    w, content = with_memory()
    w.v[2] = np.arange(LANES)[::-1] * 16
    w.s[124] = 256
    buffer(w, "LOAD_DWORDX4", 0, lds=1)
    for lane in (0, 5, 63):
        assert (w.lds.u8[256 + 16 * lane : 272 + 16 * lane] == content[int(w.v[2, lane]) :][:16]).all()


@pytest.mark.parametrize(
    ("words", "unit", "suffix"), [(1, 4, "B32"), (2, 8, "B64"), (1, 256, "ST64_B32"), (2, 512, "ST64_B64")]
)
def test_two_accesses_to_lds(words, unit, suffix):
    w = wave(lds=4096)
    w.v[2] = np.arange(LANES) * 4 % 64
    w.v[10:14] = np.arange(LANES) % 16 + np.arange(4)[:, None] * 100
    name = suffix if suffix.startswith("ST64") else f"_{suffix}"
    execute(w, "DS", ins.DSOp[f"DS_WRITE2{name}"], addr=2, data0=10, data1=10 + words, offset0=1, offset1=3)
    execute(w, "DS", ins.DSOp[f"DS_READ2{name}"], addr=2, vdst=20, offset0=1, offset1=3)
    for place, row in ((1, 20), (3, 20 + words)):
        want = words_at(w.lds.u8, int(w.v[2, 7]) + place * unit, words)
        assert (w.v[row : row + words, 7] == want).all() and want[0] in range(16 + 400)


def test_sixteen_lanes_read_a_matrix_by_columns():
    w = wave()
    w.lds.u8[:512].view(np.uint16)[:] = np.arange(256)
    # In each group of 16 lanes, lane l holds the address of four halves; rows of the result are columns there.
    w.v[2] = np.arange(LANES) * 8
    execute(w, "DS", ins.DSOp.DS_READ_B64_TR_B16, addr=2, vdst=10)
    for lane in range(LANES):
        got = [int(w.v[10 + j // 2, lane]) >> 16 * (j % 2) & 0xFFFF for j in range(4)]
        group, place = lane // 16 * 16, lane % 16
        assert got == [4 * (group + 4 * j + place // 4) + place % 4 for j in range(4)]


def test_lanes_exchange_words():
    w = wave()
    w.v[2], w.v[4] = (np.arange(LANES) * 7 % 64) * 4, draw("permute", LANES)
    execute(w, "DS", ins.DSOp.DS_BPERMUTE_B32, addr=2, data0=4, vdst=8)
    assert (w.v[8] == w.v[4][np.arange(LANES) * 7 % 64]).all()
    execute(w, "DS", ins.DSOp.DS_PERMUTE_B32, addr=2, data0=4, vdst=8)
    assert (w.v[8][np.arange(LANES) * 7 % 64] == w.v[4]).all()


@pytest.mark.parametrize("what", ["ADD", "ADD_F32", "PK_ADD_F16", "PK_ADD_BF16"])
@pytest.mark.parametrize("family", ["GLOBAL", "BUFFER", "DS"])
def test_atomic_additions_add_every_lane(what, family):
    w, content = with_memory()
    content = w.lds.u8 if family == "DS" else content
    content[:] = 0
    w.v[2] = np.arange(LANES) % 4 * 4
    one = {"ADD": 1, "ADD_F32": 0x3F800000, "PK_ADD_F16": 0x40003C00, "PK_ADD_BF16": 0x40003F80}[what]
    w.v[4] = one
    row = atomic(family, w, f"ATOMIC_{what}")
    sums = {"ADD": 16, "ADD_F32": 0x41800000, "PK_ADD_F16": 0x50004C00, "PK_ADD_BF16": 0x42004180}[what]
    assert content[:16].view(np.uint32).tolist() == [sums] * 4
    assert w.v[row, [0, 4]].tolist() == [0, one]


@pytest.mark.parametrize(("what", "combine"), [
    ("SUB", lambda old, new: old - new), ("SMIN", min), ("SMAX", max), ("AND", lambda old, new: old & new),
    ("OR", lambda old, new: old | new), ("XOR", lambda old, new: old ^ new), ("SWAP", lambda old, new: new),
    ("UMIN", lambda old, new: min(old % 2**32, new % 2**32)), ("UMAX", lambda old, new: max(old % 2**32, new % 2**32)),
])  # fmt: skip
@pytest.mark.parametrize("family", ["GLOBAL", "BUFFER", "DS"])
def test_atomic_accesses_take_turns(what, combine, family):
    w, content = with_memory()
    content = w.lds.u8 if family == "DS" else content
    content[:4].view(np.int32)[:] = now = 12345
    w.v[2], w.v[4] = 0, draw("atomic", LANES)
    before = []
    for new in w.vi[4].tolist():
        before.append(now % 2**32)
        now = combine(now, new)
    row = atomic(family, w, f"ATOMIC_{what}")
    assert content[:4].view(np.uint32)[0] == now % 2**32 and w.v[row].tolist() == before


@pytest.mark.parametrize(("suffix", "words"), [("", 1), ("_X2", 2)])
@pytest.mark.parametrize("family", ["GLOBAL", "BUFFER"])
def test_a_compare_and_swap_stores_where_memory_is_as_expected(suffix, words, family):
    w, content = with_memory()
    place = content.view(np.uint32)[: 4 * words].reshape(4, words)
    place[:] = 5
    lane = np.arange(LANES)
    w.v[2] = lane % 4 * 4 * words
    # New value, then the expected one: each lane expects what the lane before it at this place has written; lanes 20 to
    # 23 expect something else in their last word, so nothing changes from there on.
    w.v[4 : 4 + words] = lane // 4 + 6
    w.v[4 + words : 4 + 2 * words] = lane // 4 + 5
    w.v[3 + 2 * words, 20:24] = 99
    row = atomic(family, w, f"ATOMIC_CMPSWAP{suffix}")
    assert (place == 10).all()
    assert (w.v[row : row + words] == np.minimum(lane // 4 + 5, 10)).all()


def test_scratch_belongs_to_a_lane():
    w = wave(scratch=32)
    w.v[4] = draw("scratch", LANES)
    execute(w, "SCRATCH", ins.SCRATCHOp.SCRATCH_STORE_DWORD, data=4, saddr=127, offset=8)
    w.s[6] = 4
    execute(w, "SCRATCH", ins.SCRATCHOp.SCRATCH_LOAD_DWORD, vdst=5, saddr=6, offset=4)
    assert (w.v[5] == w.v[4]).all()
    with pytest.raises(EmulationFault, match="scratch at 36"):
        execute(w, "SCRATCH", ins.SCRATCHOp.SCRATCH_LOAD_DWORD, vdst=5, saddr=6, offset=32)


@pytest.mark.parametrize(
    ("name", "count"),
    [("S_LOAD_DWORD", 1), ("S_LOAD_DWORDX2", 2), ("S_LOAD_DWORDX4", 4), ("S_LOAD_DWORDX8", 8), ("S_LOAD_DWORDX16", 16)],
)
def test_scalar_loads(name, count):
    w, content = with_memory()
    w.s64[2] = content.ctypes.data + 16
    execute(w, "SMEM", ins.SMEMOp[name], sbase=2, sdata=20, offset=0x1FFFFC, imm=1)
    assert (w.s[20 : 20 + count] == words_at(content, 12, count)).all()
