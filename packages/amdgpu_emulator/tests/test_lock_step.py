"""Waves in lock step do what each of them does alone, also where they part."""

from __future__ import annotations

import numpy as np
import pytest
from amd_instructions import apart, draw, encode, translated
from test_launch import BARRIER, END, WAIT, execute
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator.memory import Allocation, GlobalMemory
from amdgpu_emulator.wave import EXEC, LANES, M0, Waves, Workgroup

BASE = 1 << 30
SHARE = 4096
"""Bytes of memory for each wave."""
FIELDS = {
    "DS": {"addr": 2, "data0": 8, "data1": 12, "vdst": 16, "offset0": 8},
    "MUBUF": {"vaddr": 2, "srsrc": 1, "soffset": 20, "offen": 1, "vdata": 8, "offset": 8},
    "GLOBAL": {"addr": 2, "saddr": 10, "offset": 8},
    "SCRATCH": {"saddr": 20, "offset": 4},
    "SMEM": {"sbase": 5, "sdata": 24, "imm": 1, "offset": 16},
}
ACCESSES = [
    *(("DS", f"DS_{what}", {}) for what in ("READ_B32", "READ_B128", "READ_U16_D16_HI", "WRITE_B32", "WRITE_B96")),
    *(("DS", f"DS_{what}", {"offset1": 5}) for what in ("READ2_B64", "WRITE2_B32")),
    *(("DS", f"DS_{what}", {}) for what in ("READ_B64_TR_B16", "BPERMUTE_B32", "PERMUTE_B32", "ADD_RTN_U32")),
    *(("MUBUF", f"BUFFER_{what}", {}) for what in ("LOAD_DWORDX4", "LOAD_UBYTE", "STORE_DWORDX3", "STORE_SHORT")),
    ("MUBUF", "BUFFER_LOAD_DWORD", {"lds": 1}), ("MUBUF", "BUFFER_ATOMIC_ADD", {"sc0": 1}),
    ("GLOBAL", "GLOBAL_LOAD_DWORDX2", {"vdst": 16}), ("GLOBAL", "GLOBAL_STORE_DWORDX4", {"data": 8}),
    ("GLOBAL", "GLOBAL_ATOMIC_ADD_F32", {"data": 8, "vdst": 16, "sc0": 1}),
    ("SCRATCH", "SCRATCH_STORE_DWORD", {"data": 8}), ("SCRATCH", "SCRATCH_LOAD_DWORD", {"vdst": 16}),
    ("SMEM", "S_LOAD_DWORDX4", {}),
]  # fmt: skip


def three_waves(whole):
    """Waves with addresses, descriptors and masks of their own, and all memory that they access."""
    memory, content = GlobalMemory(), draw("memory", 3 * SHARE // 4).view(np.uint8)
    memory.map(BASE, content, "memory")
    lds, scratch = (Allocation(draw(name, SHARE).view(np.uint8), name) for name in ("LDS", "scratch"))
    w = Waves([0, 1, 2], memory, lds, scratch, False, Workgroup(waves=3))
    w.v[:24], lane = draw("registers", (24, len(w.every))), w.every % LANES
    w.v[2] = lane * 16 + w.every // LANES * 1024 * (lane % 2)
    for wave in range(3):
        base = BASE + SHARE * wave
        w.s_by_wave[wave, 4:8] = [base & 0xFFFFFFFF, base >> 32, 900 + 4 * wave, 0x20000]
        w.s_by_wave[wave, 10:12] = [base & 0xFFFFFFFF, base >> 32]
        w.s_by_wave[wave, [20, M0]] = 4 * wave, 256 * wave
        if not whole:
            w.s_by_wave[wave, EXEC : EXEC + 2] = draw(f"mask {wave}", 2)
    w.refresh_exec()
    return w, (content, lds.u8, scratch.u8)


@pytest.mark.parametrize(("form", "name", "more"), ACCESSES, ids=lambda word: word if isinstance(word, str) else "")
def test_an_access_of_waves_in_lock_step_is_that_of_each_alone(form, name, more):
    step = translated(form, getattr(ins, f"{form}Op")[name], **FIELDS[form] | more)
    results = []
    for parted in ("never", "before the access takes place", "before it is issued"):
        w, memory = three_waves(whole="_TR_" in name)
        waves = apart(w) if parted == "before it is issued" else [w]
        for own in waves:
            step(own)
        waves = apart(w) if parted == "before the access takes place" else waves
        for own in waves:
            own.wait(0, 0)
        ends = apart(w) if parted == "never" else waves
        results.append([*memory, *(end.v for end in ends), *(end.s for end in ends)])
    w, memory = three_waves(whole="_TR_" in name)
    before = [*memory, *(own.v for own in apart(w)), *(own.s for own in apart(w))]
    assert any((a != b).any() for a, b in zip(results[0], before, strict=True))
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


def parting(barrier):
    """Waves 1 to 3 add 1000 to their number before they write it to the LDS; then wave w reads what w - 1 wrote."""
    return b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", ins.VOP2Op.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        encode("VOP1", ins.VOP1Op.V_MOV_B32_E32, src0=256, vdst=4),
        encode("VOP1", ins.VOP1Op.V_READFIRSTLANE_B32_E32, src0=256, vdst=16),
        encode("SOPC", ins.SOPCOp.S_CMP_EQ_U32, ssrc0=16, ssrc1=128),
        encode("SOPP", ins.SOPPOp.S_CBRANCH_SCC1, simm16=2),
        encode("VOP2_LIT", ins.VOP2Op.V_ADD_U32_E32, src0=255, vsrc1=0, vdst=4, literal=1000),
        encode("DS", ins.DSOp.DS_WRITE_B32, addr=1, data0=4), WAIT, barrier,
        encode("VOP2", ins.VOP2Op.V_SUBREV_U32_E32, src0=128 + 64, vsrc1=0, vdst=2),
        encode("VOP2_LIT", ins.VOP2Op.V_AND_B32_E32, src0=255, vsrc1=2, vdst=2, literal=255),
        encode("VOP2", ins.VOP2Op.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=2, vdst=2),
        encode("DS", ins.DSOp.DS_READ_B32, addr=2, vdst=3), WAIT,
        encode("GLOBAL", ins.GLOBALOp.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=3), END,
    ])  # fmt: skip


def test_waves_part_at_a_branch_and_meet_at_a_barrier():
    source = (np.arange(256) - 64) % 256
    want = source + 1000 * (source >= 64)
    for seed in range(4):
        out, races = execute(parting(BARRIER), seed, groups=1)
        assert out.tolist() == want.tolist() and races == []
    races = execute(parting(b""), groups=1)[1]
    assert [race.memory for race in races] == ["the LDS of a workgroup"]
