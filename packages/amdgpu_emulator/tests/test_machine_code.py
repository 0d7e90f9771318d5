"""Basic blocks: waits, barriers, branches, and what opcodes mean on an arch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from amd_instructions import encode, wave
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import decoder
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.machine_code import MachineCode
from amdgpu_emulator.memory import Allocation, GlobalMemory
from amdgpu_emulator.wave import LANES, M0, UNWRITTEN_WORD, VCC, Waves


def machine_code(*parts):
    code = b"".join(parts)
    return MachineCode(code, 0, "gfx950")


def test_an_access_happens_between_its_issue_and_its_wait():
    for eager in (True, False):
        w = wave(eager=eager)
        w.lds.u8[:256].view(np.uint32)[:] = 5
        w.v[2], w.v[8] = np.arange(LANES) * 4, 1
        code = machine_code(
            encode("DS", ins.DSOp.DS_READ_B32, addr=2, vdst=8),
            encode("VOP1", ins.VOP1Op.V_MOV_B32_E32, src0=264, vdst=9),
            encode("SOPP", ins.SOPPOp.S_WAITCNT, simm16=0xC07F),
            encode("VOP1", ins.VOP1Op.V_MOV_B32_E32, src0=264, vdst=10),
            encode("SOPP", ins.SOPPOp.S_ENDPGM),
        )
        w.pc, runs = 0, Counter()
        assert [code.run(w, runs), code.run(w, runs)] == ["wait", "end"]
        # What uses the register before the wait sees what was loaded or nothing, and never what was there before.
        assert set(w.v[9].tolist()) == {5 if eager else UNWRITTEN_WORD}
        assert set(w.v[10].tolist()) == {5}


def test_branches_and_calls():
    w = wave()
    code = machine_code(
        encode("SOPK", ins.SOPKOp.S_MOVK_I32, sdst=4, simm16=3),
        encode("SOPK", ins.SOPKOp.S_ADDK_I32, sdst=5, simm16=7),
        encode("SOPK", ins.SOPKOp.S_ADDK_I32, sdst=4, simm16=0xFFFF),
        encode("SOPK", ins.SOPKOp.S_CMPK_LG_I32, sdst=4, simm16=0),
        encode("SOPP", ins.SOPPOp.S_CBRANCH_SCC1, simm16=0xFFFC),
        encode("SOPP", ins.SOPPOp.S_BARRIER),
        encode("SOPP", ins.SOPPOp.S_ENDPGM),
    )
    w.s[5] = 0
    w.pc, runs = 0, Counter()
    assert [code.run(w, runs), code.run(w, runs)] == ["barrier", "end"]
    assert w.s[5] == 21 and code.opcodes(runs).total() == 1 + 3 * 4 + 1 + 1
    for name, vcc, taken in (
        ("VCCZ", 0, True),
        ("VCCZ", 1, False),
        ("VCCNZ", 1, True),
        ("EXECZ", 0, False),
        ("EXECNZ", 0, True),
        ("SCC0", 0, True),
    ):
        jumps = machine_code(
            encode("SOPP", ins.SOPPOp[f"S_CBRANCH_{name}"], simm16=1), encode("SOPP", ins.SOPPOp.S_ENDPGM),
            encode("SOPP", ins.SOPPOp.S_BARRIER),
        )  # fmt: skip
        w = wave()
        w.pc, w.s64[VCC // 2] = 0, vcc
        assert jumps.run(w, Counter()) == ("barrier" if taken else "end")


def test_products_of_bf16_have_numbers_of_their_own_on_gfx90a():
    # As the compiler encodes v_mfma_f32_16x16x16bf16_1k for gfx90a.
    inst = decoder.decode(bytes.fromhex("0000e7d306150202"), 0, "gfx90a")
    assert inst.opcode == "V_MFMA_F32_16X16X16_BF16"
    with pytest.raises(UnsupportedInstruction, match="no instruction at 0x0: 0000e7d306150202"):
        decoder.decode(bytes.fromhex("0000e7d306150202"), 0, "gfx942")


def test_gfx90a_rounds_the_product():
    parts = [
        encode("VOP2_LIT", ins.VOP2Op.V_FMAMK_F32_E32, src0=258, vsrc1=4, vdst=9, literal=0x40490FDB),
        encode("VOP2_LIT", ins.VOP2Op.V_FMAAK_F32_E32, src0=258, vsrc1=4, vdst=10, literal=0x40490FDB),
        encode("VOP2", ins.VOP2Op.V_DOT2C_F32_BF16_E32, src0=258, vsrc1=4, vdst=5),
        encode("SOPP", ins.SOPPOp.S_ENDPGM),
    ]
    w = wave()
    w.vf[2], w.vf[4], w.vf[5] = np.linspace(-3, 3, LANES), np.linspace(0.1, 5, LANES), 0.3
    w.pc = 0
    assert MachineCode(b"".join(parts), 0, "gfx90a").run(w, Counter()) == "end"
    pi = np.float32(3.14159274)
    assert (w.vf[9] == w.vf[2] * pi + w.vf[4]).all() and (w.vf[10] == w.vf[2] * w.vf[4] + pi).all()
    assert (w.vf[5] == w.vf[2] * w.vf[4] + np.float32(0.3)).all()


def test_index_mode_moves_the_registers_that_a_move_names():
    """The index is 3, 200 with other bits above it, and 3, in waves that go on together; moves may also be masked."""
    source, target = 1, 8
    for what, row, result in ((source, 258, 5), (target, 7, 258), (source | target, 258, 258)):
        code = MachineCode(b"".join([
            encode("SOPC", ins.SOPCOp.S_SET_GPR_IDX_ON, ssrc0=20, ssrc1=what),
            encode("VOP1", ins.VOP1Op.V_MOV_B32_E32, src0=row, vdst=result & 255),
            encode("SOPP", ins.SOPPOp.S_SET_GPR_IDX_OFF),
            encode("VOP1", ins.VOP1Op.V_MOV_B32_E32, src0=256 + 9, vdst=10),
            encode("SOPP", ins.SOPPOp.S_ENDPGM),
        ]), 0, "gfx90a")  # fmt: skip
        w = Waves([0, 1, 2], GlobalMemory(), *[Allocation(np.zeros(64, np.uint8), "none")] * 2, True)
        w.v[:], w.pc = np.arange(512)[:, None] * 1000 + w.every, 0
        w.s[20::128], w.s[7::128], w.s[M0::128] = [3, 0xAB0000C8, 0x103], 77, 0xDEADBEEF
        w.set_exec(0xFFFFFFFF0000FFFF)
        before = w.v.copy()
        assert code.run(w, Counter()) == "end"
        for lane in range(3 * LANES):
            want = before[:, lane].copy()
            if 0xFFFFFFFF0000FFFF >> lane % 64 & 1:
                index = (3, 0xC8, 3)[lane // LANES]
                moved = 77 if what == target else want[2 + index]
                want[(2 if what & target else 5) + (index if what & target else 0)] = moved
                want[10] = want[9]
            assert (w.v[:, lane] == want).all()
        assert w.s[M0::128].tolist() == [0xDEAD0E00 & ~0xF000 | what << 12 | index for index in (3, 0xC8, 3)]


def test_an_opcode_that_is_not_known_names_itself_and_its_address():
    w = wave()
    code = machine_code(
        encode("SOPP", ins.SOPPOp.S_NOP), encode("VOP1", ins.VOP1Op.V_CVT_OFF_F32_I4_E32, src0=258, vdst=4),
        encode("SOPP", ins.SOPPOp.S_ENDPGM),
    )  # fmt: skip
    w.pc = 0
    with pytest.raises(
        UnsupportedInstruction, match=r"V_CVT_OFF_F32_I4 at 0x4 by wave 0 of .*: V_CVT_OFF_F32_I4_E32 is not emulated"
    ):
        code.run(w, Counter())
