"""Every opcode of the emulated GPU against AMD's pseudocode, or a formula, with random and extreme operands."""

from __future__ import annotations

import numpy as np
import pytest
from amd_instructions import draw, execute, meaning, wave
from amd_pseudocode import fma
from amd_pseudocode import run as pseudocode
from tinygrad.runtime.autogen.amd.cdna import ins
from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS
from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

from amdgpu_emulator import scalar_operations, vector_operations
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.matrix_instructions import mfma_shape
from amdgpu_emulator.vector_instructions import PACKED
from amdgpu_emulator.wave import EVERY_LANE, EXEC, LANES, VCC

INEXACT = tuple(
    f"V_{name}_F{bits}" for name in ("RCP", "RSQ", "SQRT", "EXP", "LOG", "FRACT", "RCP_IFLAG") for bits in (16, 32, 64)
)
FORMULAS = (
    "V_FMAMK_F32", "V_FMAAK_F32", "V_PERM_B32", "V_SAD_U32", "V_CVT_PKRTZ_F16_F32", "V_TRIG_PREOP_F64", "V_PK_FMAC_F16",
    *(f"V_{name}_F{bits}" for name in ("LDEXP", "RNDNE", "SIN", "COS", "DIV_SCALE", "DIV_FMAS", "DIV_FIXUP")
      for bits in (16, 32, 64)), "V_DOT2C_F32_F16",
    *(f"V_CVT_{form.format(kind)}" for form in ("F32_{}", "PK_F32_{}", "PK_{}_F32") for kind in ("FP8", "BF8")),
)  # fmt: skip
"""Opcodes whose pseudocode is not run here: each has a test of its own below."""
VECTOR = sorted(
    (key for key in PCODE if type(key).__name__ in ("VOP1Op", "VOP2Op", "VOP3Op", "VOP3SDOp", "VOPCOp")
     and meaning(key) in vector_operations.VECTOR_OPERATIONS
     and meaning(key) not in FORMULAS),
    key=lambda key: (type(key).__name__, key.name),
)  # fmt: skip
CHOICES = (
    "V_CNDMASK_B32",
    *(f"V_{name}_F{bits}" for name in ("MIN", "MAX", "MIN3", "MAX3", "MED3") for bits in (16, 32, 64)),
)
"""Their results are the same to the bit, NaN and zeros too."""
SCALAR = sorted(
    (key for key in PCODE if type(key).__name__.startswith("SO")
     and key.name in scalar_operations.SCALAR_OPERATIONS),
    key=lambda key: key.name,
)  # fmt: skip


def same(got, want, kind, exact=True):
    if kind in ("f16", "f32", "f64"):
        size = {"f16": 16, "f32": 32, "f64": 64}[kind]
        a, b = (
            np.array([value & (1 << size) - 1], f"u{size // 8}").view(kind.replace("f", "float"))
            for value in (got, want)
        )
        inexact = 1e-3 if kind == "f16" else 3e-7
        return bool(np.isclose(a, b, rtol=0 if exact else inexact, atol=0, equal_nan=True)[0])
    return got == want


@pytest.mark.parametrize("op", VECTOR, ids=lambda op: op.name)
def test_a_vector_opcode_computes_what_the_pseudocode_says(op):
    name = meaning(op)
    operation = vector_operations.VECTOR_OPERATIONS[name]
    form = type(op).__name__.removesuffix("Op")
    compares = operation.result == "mask"
    if form == "VOP3" and compares:
        form = "VOP3_SDST"
    w = wave()
    w.v[:12] = draw(op.name, (12, LANES))
    mask = int(draw(op.name + "exec", 1)[0]) << 20 | 0xF0F
    w.s64[VCC // 2], w.s64[40 // 2] = 0x123456789ABCDEF0, 0x0F1E2D3C4B5A6978
    w.set_exec(mask)
    before = w.v.copy()
    carry_in = int(w.s64[40 // 2]) if form in ("VOP3", "VOP3SD") else int(w.s64[VCC // 2])
    fields = {"src0": 256 + 2, "vdst": 8}
    takes_mask = "mask" in operation.operands
    if form in ("VOP2", "VOPC"):
        fields["vsrc1"] = 4
    elif form != "VOP1":
        fields |= {"src1": 256 + 4, "src2": 40 if takes_mask else 256 + 6}
    if form == "VOPC":
        del fields["vdst"]
    if form == "VOP3_SDST":
        fields["vdst"] = 50
    if form == "VOP3SD":
        fields["sdst"] = 52
    execute(w, form, op, **fields)
    assert (w.v[[*range(8), *range(10, 12)]] == before[[*range(8), *range(10, 12)]]).all()
    wide = operation.result in ("u64", "i64", "f64")
    out_mask = int(w.s64[{"VOP3SD": 52, "VOP3_SDST": 50}.get(form, VCC) // 2])
    for lane in range(LANES):

        def pair(rows, row, lane=lane):
            return int(rows[row, lane]) | int(rows[row + 1, lane]) << 32

        if not mask >> lane & 1:
            assert w.v[8, lane] == before[8, lane] and w.v[9, lane] == before[9, lane]
            assert not (operation.carries or compares) or not out_mask >> lane & 1
            continue
        kinds = (*[kind for kind in operation.operands if kind not in ("mask", "old")], "u32", "u32")[:3]
        s = {}
        for i, kind in enumerate(kinds):
            s[f"S{i}"] = pair(before, 2 + 2 * i) if kind.endswith("64") else int(before[2 + 2 * i, lane])
        old = pair(before, 8) if wide else int(before[8, lane])
        names = pseudocode(op, **s, D0=old, D1=0, VCC=carry_in, laneId=lane, OPSEL=0, PI=np.pi)
        if compares:
            assert out_mask >> lane & 1 == names["D0"] >> lane & 1, (lane, s)
            continue
        got = pair(w.v, 8) if wide else int(w.v[8, lane])
        kind = "bits" if name in CHOICES else operation.result
        assert same(got, names["D0"], kind, name not in INEXACT), (lane, s, hex(got), hex(names["D0"]))
        if not wide:
            assert w.v[9, lane] == before[9, lane]
        if operation.carries:
            carry = names["D1"] if name.startswith("V_MAD") else names["VCC"] >> lane & 1
            assert out_mask >> lane & 1 == carry, (lane, s)


@pytest.mark.parametrize("op", SCALAR, ids=lambda op: op.name)
def test_a_scalar_opcode_computes_what_the_pseudocode_says(op):
    form = type(op).__name__.removesuffix("Op")
    words = draw(op.name, (40, 6))
    sizes = {name: row[1] for name, row in OPERANDS[op].items()}
    for row in words:
        for scc in (0, 1):
            w = wave()
            w.s[10:16] = row
            w.scc = [scc]
            d0 = w.s64.item(7) if sizes.get("sdst", 32) == 64 else w.s.item(14)
            names = {"SCC": scc, "D0": d0}
            if form == "SOPK":
                constant = int(row[1]) & 0xFFFF
                execute(w, form, op, sdst=14, simm16=constant)
                compares = "CMPK" in op.name
                names |= {"S0": d0 if compares else constant, "S1": constant}
            else:
                fields = (
                    {"ssrc0": 10} | ({"ssrc1": 12} if form != "SOP1" else {}) | ({"sdst": 14} if form != "SOPC" else {})
                )
                execute(w, form, op, **fields)
                for index in range(len(fields) - ("sdst" in fields)):
                    wide = sizes[f"ssrc{index}"] == 64
                    first = 10 + 2 * index
                    names[f"S{index}"] = int(row[first - 10]) | (int(row[first - 9]) << 32 if wide else 0)
            after = pseudocode(op, **names)
            size = sizes.get("sdst", 0)
            if size and "CMPK" not in op.name:
                got = w.s64.item(7) if size == 64 else w.s.item(14)
                assert got == after["D0"] & (1 << size) - 1, (row, hex(got), after)
            assert w.scc == [int(after["SCC"])], (row, after)


def reference_perm(a, b, sel):
    data, out = (a << 32 | b), 0
    for byte in range(4):
        s = sel >> 8 * byte & 0xFF
        if s < 8:
            value = data >> 8 * s & 0xFF
        elif s < 12:
            value = 0xFF * (data >> 16 * (s - 8) + 15 & 1)
        else:
            value = 0 if s == 12 else 0xFF
        out |= value << 8 * byte
    return out


def test_bytes_are_chosen_by_selectors():
    op = ins.VOP3Op.V_PERM_B32_E64
    w = wave()
    w.v[2:8] = draw("perm", (6, LANES))
    w.v[6] = np.arange(LANES) % 16 | (np.arange(LANES) * 3 % 16) << 8 | 0x0C07 << 16
    execute(w, "VOP3", op, src0=258, src1=260, src2=262, vdst=8)
    expected = [reference_perm(*(int(w.v[row, lane]) for row in (2, 4, 6))) for lane in range(LANES)]
    assert w.v[8].tolist() == expected
    for w.s[6] in (0x05040100, 0x07060302, 0x01000504, 0x0C070C01):
        execute(w, "VOP3", op, src0=258, src1=260, src2=6, vdst=8)
        expected = [reference_perm(*(int(w.v[row, lane]) for row in (2, 4)), int(w.s[6])) for lane in range(LANES)]
        assert w.v[8].tolist() == expected


@pytest.mark.parametrize("table", [0xFF, 0x96, 0x1B])
def test_any_function_of_three_bits(table):
    w = wave()
    w.v[2:8] = draw("bitop3", (6, LANES))
    execute(
        w, "VOP3", ins.VOP3Op.V_BITOP3_B32, src0=258, src1=260, src2=262, vdst=8, omod=table >> 6,
        abs=table >> 3 & 7, neg=table & 7,
    )  # fmt: skip
    for bit in (0, 13, 31):
        a, b, c = (w.v[row] >> np.uint32(bit) & 1 for row in (2, 4, 6))
        assert (w.v[8] >> np.uint32(bit) & 1 == table >> (a << 2 | b << 1 | c) & 1).all()


def test_rounding_toward_zero_never_enlarges():
    w = wave()
    w.v[2:6] = draw("pkrtz", (4, LANES))
    execute(w, "VOP3", ins.VOP3Op.V_CVT_PKRTZ_F16_F32, src0=258, src1=260, vdst=8)
    for row, shift in ((2, 0), (4, 16)):
        source = w.vf[row].astype(np.float64)
        got = (w.v[8] >> shift & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
        plain = np.abs(source) < 65504
        assert (np.abs(got[plain]) <= np.abs(source[plain])).all()
        # The next number away from zero is beyond the source.
        up = np.nextafter(
            got[plain].astype(np.float16), np.copysign(np.float16(np.inf), source[plain]).astype(np.float16)
        )
        assert (np.abs(up.astype(np.float64)) > np.abs(source[plain])).all()
        assert (np.isnan(got) == np.isnan(source)).all()


def test_scaling_rounding_and_differences():
    w = wave()
    w.v[2:8] = draw("others", (6, LANES))
    w.vi[4] = np.arange(-32, 32)
    execute(w, "VOP3", ins.VOP3Op.V_LDEXP_F32, src0=258, src1=260, vdst=8)
    with np.errstate(all="ignore"):
        assert np.array_equal(w.vf[8], np.ldexp(w.vf[2].astype(np.float64), w.vi[4]).astype("f4"), equal_nan=True)
    execute(w, "VOP1", ins.VOP1Op.V_RNDNE_F32_E32, src0=258, vdst=9)
    assert np.array_equal(w.vf[9], np.rint(w.vf[2]), equal_nan=True)
    execute(w, "VOP2_LIT", ins.VOP2Op.V_FMAMK_F32_E32, src0=258, vsrc1=4, vdst=9, literal=0x40400000)
    execute(w, "VOP2_LIT", ins.VOP2Op.V_FMAAK_F32_E32, src0=258, vsrc1=4, vdst=10, literal=0x40400000)
    with np.errstate(all="ignore"):
        pairs, three = list(zip(w.vf[2], w.vf[4], strict=True)), np.float32(3)
        assert np.array_equal(w.vf[9], [fma(x, three, y) for x, y in pairs], equal_nan=True)
        assert np.array_equal(w.vf[10], [fma(x, y, three) for x, y in pairs], equal_nan=True)
    execute(w, "VOP3", ins.VOP3Op.V_SAD_U32, src0=258, src1=260, src2=262, vdst=8)
    a, b, c = (w.v[row].astype(np.int64) for row in (2, 4, 6))
    assert (w.v[8] == (np.abs(a - b) + c) % 2**32).all()


@pytest.mark.parametrize("op", [op for op in ins.VOP3POp if op.name in PACKED], ids=lambda op: op.name)
def test_a_packed_opcode_does_the_same_twice(op):
    wide = PACKED[op.name] == 64
    w = wave()
    w.v[2:8] = draw(op.name, (6, LANES))
    before = w.v.copy()
    fields = {"src0": 258, "src1": 260, "src2": 262, "vdst": 8, "opsel_hi": 3, "opsel_hi2": 1}
    if op.name == "V_PK_MOV_B32":
        execute(w, "VOP3P", op, **fields | {"opsel": 2})
        assert (w.v[8] == before[2]).all() and (w.v[9] == before[5]).all()
        # A pair may be swapped in place.
        execute(w, "VOP3P", op, src0=258, src1=258, vdst=2, opsel=1)
        assert (w.v[2] == before[3]).all() and (w.v[3] == before[2]).all()
        return
    execute(w, "VOP3P", op, **fields)
    for lane in range(LANES):
        s = {f"S{i}": int(before[2 + 2 * i, lane]) | int(before[3 + 2 * i, lane]) << 32 for i in range(3)}
        got = (
            [int(w.v[8, lane]), int(w.v[9, lane])] if wide else [int(w.v[8, lane]) >> 16 * i & 0xFFFF for i in range(2)]
        )
        bits = pseudocode(op, **s)["D0"]
        want = [bits >> (32 if wide else 16) * i & (1 << (32 if wide else 16)) - 1 for i in range(2)]
        kind = ("f32" if wide else "f16") if "F" in op.name.rsplit("_")[-1] else "u32"
        assert all(same(g, v, kind) for g, v in zip(got, want, strict=True)), (lane, s, got, want)


@pytest.mark.parametrize("op", [op for op in ins.VOP3POp if mfma_shape(op.name)], ids=lambda op: op.name)
def test_a_matrix_product(op):
    """Small whole numbers: every sum is exact, whatever the order. The layout is written out by lanes."""
    shape = mfma_shape(op.name)
    rng = np.random.default_rng(7)
    a = rng.integers(-4, 5, (shape.blocks, shape.m, shape.k)).astype(np.float64)
    b = rng.integers(-4, 5, (shape.blocks, shape.k, shape.n)).astype(np.float64)
    c = rng.integers(-9, 9, (shape.blocks, shape.m, shape.n)).astype(np.float64)
    w = wave()
    for lane in range(LANES):
        row, group = lane % shape.m, lane // shape.m
        block, first = (group, 0) if shape.blocks > 1 else (0, group * shape.lane_k)
        for rows, kind, values in ((16, shape.a, a[block, row, first:]), (32, shape.b, b[block, first:, row])):
            words = element_bytes(values[: shape.lane_k], kind).view(np.uint32)
            w.v[rows : rows + len(words), lane] = words
    wide = 2 if shape.c == "F64" else 1
    places = {}
    for register in range(shape.results):
        for lane in range(LANES):
            if shape.m == 4:
                place = (lane // 4, register, lane % 4)
            elif wide == 2:
                place = (0, 4 * register + lane // 16, lane % 16)
            else:
                per_block = shape.results // shape.blocks
                r, height = register % per_block, 64 // shape.m
                place = (register // per_block, 4 * height * (r // 4) + 4 * (lane // shape.m) + r % 4, lane % shape.m)
            places[register, lane] = place
            words = element_bytes(c[place], shape.c).view(np.uint32)
            w.v[100 + wide * register : 100 + wide * register + wide, lane] = words
    assert len(set(places.values())) == c.size
    # C and D in accumulation registers.
    w.v[256 + 100 : 256 + 164] = w.v[100:164]
    execute(w, "VOP3P_MFMA", op, src0=256 + 16, src1=256 + 32, src2=256 + 100, vdst=60, acc_cd=1)
    execute(w, "VOP3P_MFMA", op, src0=256 + 16, src1=256 + 32, src2=128, vdst=160)
    product = a @ b
    for (register, lane), place in places.items():
        for row, want in ((256 + 60, product[place] + c[place]), (160, product[place])):
            got = w.v[row + wide * register : row + wide * register + wide, lane]
            assert got.tobytes() == element_bytes(want, shape.c).tobytes()


def element_bytes(values, kind):
    """Small whole numbers as the elements of a matrix."""
    values = np.atleast_1d(values)
    if kind == "BF16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind in ("FP8", "BF8"):
        digits, bias = (3, 7) if kind == "FP8" else (2, 15)
        numbers = {0: 0, **{s * (8 + r) / 8 * 2**e: (s < 0) << 7 | e + bias << digits | r >> 3 - digits
                            for s in (1, -1) for e in range(4) for r in range(0, 8, 8 >> digits)}}  # fmt: skip
        return np.array([numbers[value] for value in values.tolist()], np.uint8)
    return values.astype({"F64": "f8", "F32": "f4", "F16": "f2", "I8": "i1", "I32": "i4"}[kind])


def test_accumulation_registers_and_lanes():
    w = wave()
    w.v[2] = draw("lanes", LANES)
    for op, source, target, row in (("WRITE", 2, 5, 256 + 5), ("READ", 5, 7, 7)):
        execute(w, "VOP3P_MFMA", ins.VOP3POp[f"V_ACCVGPR_{op}"], src0=256 + source, vdst=target)
        assert (w.v[row] == w.v[2]).all()
    execute(w, "VOP1", ins.VOP1Op.V_ACCVGPR_MOV_B32_E32, src0=256 + 5, vdst=6)
    assert (w.v[256 + 6] == w.v[2]).all()
    w.set_exec(EVERY_LANE << 9 & EVERY_LANE)
    execute(w, "VOP1", ins.VOP1Op.V_READFIRSTLANE_B32_E32, src0=258, vdst=20)
    assert w.s[20] == w.v[2, 9]
    w.s[3] = 0x40 + 17
    execute(w, "VOP3", ins.VOP3Op.V_READLANE_B32, src0=258, src1=3, vdst=21)
    assert w.s[21] == w.v[2, 17]
    execute(w, "VOP3", ins.VOP3Op.V_WRITELANE_B32, src0=20, src1=3, vdst=2)
    assert w.v[2, 17] == w.s[20]
    for high in (False, True):
        op = ins.VOP3Op.V_MBCNT_HI_U32_B32 if high else ins.VOP3Op.V_MBCNT_LO_U32_B32
        w.set_exec(EVERY_LANE)
        w.v[4], w.s[5] = 7, 0xF0F0A5A5
        execute(w, "VOP3", op, src0=5, src1=260, vdst=6)
        for lane in range(LANES):
            below = lane - 32 if high else lane
            assert w.v[6, lane] == 7 + (0xF0F0A5A5 & (1 << max(0, min(below, 32))) - 1).bit_count()


def test_modifiers_constants_and_literals():
    w = wave()
    w.vf[2], w.vf[4] = np.linspace(-3, 3, LANES), np.linspace(5, -5, LANES)
    execute(w, "VOP3", ins.VOP3Op.V_ADD_F32_E64, src0=258, src1=260, vdst=8, neg=2, abs=1, omod=1, clmp=1)
    assert np.allclose(w.vf[8], np.clip((np.abs(w.vf[2]) - w.vf[4]) * 2, 0, 1))
    execute(w, "VOP3", ins.VOP3Op.V_MUL_F16_E64, src0=243, src1=128, vdst=8, clmp=1)
    assert (w.v[8] == 0).all()
    execute(w, "VOP2", ins.VOP2Op.V_MUL_F32_E32, src0=245, vsrc1=2, vdst=8)
    assert (w.vf[8] == -2 * w.vf[2]).all()
    execute(w, "VOP2_LIT", ins.VOP2Op.V_ADD_U32_E32, src0=255, vsrc1=2, vdst=8, literal=0x12345678)
    assert (w.v[8] == w.v[2] + np.uint32(0x12345678)).all()
    execute(w, "VOP2", ins.VOP2Op.V_ADD_U32_E32, src0=193, vsrc1=2, vdst=8)
    assert (w.v[8] == w.v[2] - np.uint32(1)).all()
    execute(w, "VOP3", ins.VOP3Op.V_LSHL_ADD_U64, src0=258, src1=128, src2=193, vdst=8)
    both = w.v[2].astype(np.uint64) | w.v[3].astype(np.uint64) << np.uint64(32)
    assert (w.v[8] == (both - np.uint64(1)).astype(np.uint32)).all()
    # A float among the operands of 64 bits is a double, one of 32 bits a float.
    execute(w, "SOP1", ins.SOP1Op.S_MOV_B64, ssrc0=242, sdst=10)
    execute(w, "SOP1", ins.SOP1Op.S_MOV_B32, ssrc0=242, sdst=12)
    assert (w.s64[5], w.s[12]) == (0x3FF0000000000000, 0x3F800000)
    for name, kind in (("V_ADD_U32_E64", np.uint32), ("V_SUB_I32", np.int32), ("V_SUB_U16_E64", np.uint16)):
        execute(w, "VOP3", ins.VOP3Op[name], src0=258, src1=260, vdst=8, clmp=1)
        a, b = (w.v[row].astype(kind).astype(np.int64) for row in (2, 4))
        held = np.clip(a + b if "ADD" in name else a - b, np.iinfo(kind).min, np.iinfo(kind).max)
        assert (w.v[8] == held.astype(kind).astype(np.uint32)).all()
    with pytest.raises(UnsupportedInstruction, match="V_XOR_B32_E64 with clamp"):
        execute(w, "VOP3", ins.VOP3Op.V_XOR_B32_E64, src0=258, src1=260, vdst=8, clmp=1)


def test_parts_of_words():
    w = wave()
    w.v[2], w.v[4], w.v[8] = draw("a", LANES), draw("b", LANES), 0xAABBCCDD
    execute(
        w, "VOP2_SDWA", ins.VOP2Op.V_OR_B32_E32, src0=249, vsrc0=2, vsrc1=4, vdst=8, src0_sel=5, src1_sel=6, dst_sel=6
    )
    assert (w.v[8] == (w.v[2] >> np.uint32(16) | w.v[4])).all()
    w.v[8] = 0xAABBCCDD
    execute(
        w, "VOP2_SDWA", ins.VOP2Op.V_ADD_U32_E32, src0=249, vsrc0=2, vsrc1=4, vdst=8, src0_sel=0, src0_sext=1,
        src1_sel=3, dst_sel=1, dst_unused=2,
    )  # fmt: skip
    byte = (w.v[2] & np.uint32(255)).astype(np.uint8).view(np.int8).astype(np.int64) + (w.v[4] >> np.uint32(24))
    assert (w.v[8] == (0xAABB00DD | (byte & 255) << 8)).all()


@pytest.mark.parametrize(
    ("control", "source"),
    [(0x1B, lambda i: i & ~3 | 3 - i % 4), (0x101, lambda i: i + 1 if i % 16 < 15 else None),
     (0x112, lambda i: i - 2 if i % 16 >= 2 else None), (0x124, lambda i: i & ~15 | (i - 4) % 16),
     (0x140, lambda i: i & ~15 | 15 - i % 16), (0x142, lambda i: (i & ~15) - 1 if i >= 16 else None),
     (0x143, lambda i: 31 if i >= 32 else None), (0x153, lambda i: i & ~15 | 3)],
)  # fmt: skip
def test_operands_of_other_lanes(control, source):
    w = wave()
    w.v[2], w.v[8] = draw("dpp", LANES), 0x55
    before = w.v[2].copy()
    execute(
        w, "VOP1_DPP16", ins.VOP1Op.V_MOV_B32_E32, src0=250, vsrc0=2, vdst=8, dpp=control, row_mask=15, bank_mask=15
    )
    want = [0x55 if source(lane) is None else int(before[source(lane)]) for lane in range(LANES)]
    assert w.v[8].tolist() == want and (w.v[2] == before).all()


@pytest.mark.parametrize(
    ("op", "want"),
    [("AND", lambda s, e: s & e), ("OR", lambda s, e: s | e), ("XOR", lambda s, e: s ^ e),
     ("ANDN2", lambda s, e: s & ~e), ("ANDN1", lambda s, e: ~s & e), ("ORN2", lambda s, e: s | ~e)],
)  # fmt: skip
def test_the_mask_is_kept_and_combined(op, want):
    w = wave()
    old, source = 0x00FF00FF12345678, 0x0F0F0F0FF0F0F0F0
    w.set_exec(old)
    w.s64[5] = source
    execute(w, "SOP1", ins.SOP1Op[f"S_{op}_SAVEEXEC_B64"], ssrc0=10, sdst=14)
    new = want(source, old) & EVERY_LANE
    assert (w.s64.item(7), w.s64.item(EXEC // 2), w.scc) == (old, new, [int(new != 0)])
    assert w.m.tolist() == [bool(new >> lane & 1) for lane in range(LANES)]


def test_a_comparison_may_disable_lanes():
    w = wave()
    w.v[2], w.v[4] = np.arange(LANES), 20
    w.set_exec(EVERY_LANE ^ 1)
    execute(w, "VOP3_SDST", ins.VOP3Op.V_CMPX_LT_U32_E64, src0=258, src1=260, vdst=30)
    assert w.s64.item(15) == w.s64.item(EXEC // 2) == (1 << 20) - 2
    for form, fields in (("VOPC", {"src0": 258}), ("VOPC_SDWA_SDST", {"src0": 249, "vsrc0": 2, "src1_sel": 6})):
        w.set_exec(EVERY_LANE)
        execute(w, form, ins.VOPCOp.V_CMPX_GE_U32_E32, vsrc1=4, **fields)
        assert w.m.tolist() == [lane >= 20 for lane in range(LANES)]
    with pytest.raises(UnsupportedInstruction, match="V_SWAP_B32"):
        execute(w, "VOP1_SDWA", ins.VOP1Op.V_SWAP_B32_E32, src0=249, vsrc0=2, vdst=6)
