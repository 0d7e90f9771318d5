"""Arithmetic against whole numbers and fractions: rounded once, with the right zeros and the right NaN."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from amd_instructions import execute, wave
from amd_pseudocode import bits_of, fma, nearest, view
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import UnsupportedInstruction, floats
from amdgpu_emulator.wave import LANES

VOP1, VOP2, VOP3, VOP3P, VOP3SD = ins.VOP1Op, ins.VOP2Op, ins.VOP3Op, ins.VOP3POp, ins.VOP3SDOp
KINDS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def near_ties(kind, count, rng):
    """Factors and addends whose sum is next to the middle of two numbers, or cancels; and any bits at all."""
    size = np.dtype(kind).itemsize
    words = rng.integers(0, 1 << 8 * size, (3, count), dtype=f"u{size}", endpoint=False)
    a, b, c = words.view(kind)
    with np.errstate(all="ignore"):
        scale = rng.integers(-60, 60, count) if size > 2 else rng.integers(-12, 12, count)
        product = (a.astype(np.float64) * b).astype(kind)
        half = np.ldexp(np.spacing(product).astype(np.float64), -1).astype(kind)
        c = np.select(
            [np.arange(count) % 4 == n for n in (0, 1, 2)],
            [half, -np.nextafter(product, kind(0)), np.ldexp(product.astype(np.float64), scale).astype(kind)], c,
        )  # fmt: skip
    return a, b, c.astype(kind)


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_a_fused_product_and_sum_is_rounded_once(name):
    kind = KINDS[name]
    a, b, c = near_ties(kind, 6000, np.random.default_rng(5))
    edges = [kind(value) for value in (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)]
    edges += [np.finfo(kind).max, np.finfo(kind).tiny, np.finfo(kind).smallest_subnormal, -np.finfo(kind).max]
    all_ = np.array([(x, y, z) for x in edges for y in edges for z in edges], kind).T
    a, b, c = (np.concatenate(pair) for pair in zip((a, b, c), all_, strict=True))
    with np.errstate(all="ignore"):
        got = floats.fma(a, b, c)
        want = np.array([fma(*three) for three in zip(a, b, c, strict=True)], kind)
    same = (floats.bits_of(got) == floats.bits_of(want)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), [(x, y, z) for x, y, z in zip(a[~same], b[~same], c[~same], strict=True)][:4]


@pytest.mark.parametrize("form", ["V_FMA_F32_E64", "V_FMAC_F32_E32", "V_PK_FMA_F32", "V_MAD_MIX_F32"])
def test_every_instruction_with_three_floats_rounds_once(form):
    """A product and an addend of which a sum in double precision, rounded again, has another last bit."""
    w = wave()
    for row, bits in ((2, 0x3F801000), (3, 0x3F801000), (4, 0x2FFF0400), (5, 0x2FFF0400), (6, 0x1), (7, 0x1)):
        w.v[row] = bits
    w.v[8:10] = w.v[6:8]
    fields = {"src0": 258, "src1": 260, "src2": 262, "vdst": 8}
    if "FMAC" in form:
        execute(w, "VOP2", VOP2[form], src0=258, vsrc1=4, vdst=8)
    elif form.startswith("V_FMA"):
        execute(w, "VOP3", VOP3[form], **fields)
    else:
        chosen = {"opsel_hi": 3, "opsel_hi2": 1} if "PK" in form else {}
        execute(w, "VOP3P", VOP3P[form], **fields, **chosen)
    want = fma(*(view(bits, "f32") for bits in (0x3F801000, 0x2FFF0400, 1)))
    assert int(w.v[8, 0]) == bits_of(want, "f32") == 0x2FFF23E1
    assert "PK" not in form or w.v[9, 0] == w.v[8, 0]


def test_mixed_precision_rounds_a_float_and_then_a_half():
    rng = np.random.default_rng(9)
    w = wave()
    w.v[2:8] = rng.integers(0, 1 << 32, (6, LANES), np.uint32)
    w.v[2], w.v[4], w.v[8] = rng.integers(0x30003000, 0x40004000, LANES, np.uint32), 0x3F812345, 0xABCDEF01
    execute(
        w, "VOP3P", VOP3P.V_MAD_MIXHI_F16, src0=258, src1=260, src2=258, vdst=8, opsel=1, opsel_hi=1, opsel_hi2=1, neg=4
    )
    execute(w, "VOP3P", VOP3P.V_MAD_MIX_F32, src0=258, src1=260, src2=262, vdst=9, opsel=1, opsel_hi=1, neg_hi=4)
    for lane in range(LANES):
        x, low, y = view(int(w.v[2, lane]) >> 16, "f16"), view(int(w.v[2, lane]), "f16"), view(0x3F812345, "f32")
        half = np.float16(fma(np.float32(x), y, -np.float32(low)))
        assert int(w.v[8, lane]) == bits_of(half, "f16") << 16 | 0xEF01
        want = fma(np.float32(x), y, abs(view(int(w.v[6, lane]), "f32")))
        assert int(w.v[9, lane]) == bits_of(want, "f32") or np.isnan(want)


def test_sums_of_products_of_halves_round_each_step_once():
    rng = np.random.default_rng(2)
    w = wave()
    w.v[2:9] = rng.integers(0x28002800, 0x44004400, (7, LANES), np.uint32)
    before = w.v.copy()
    execute(w, "VOP3P", VOP3P.V_DOT2_F32_F16, src0=258, src1=260, src2=262, vdst=9, opsel_hi=3, opsel_hi2=1)
    execute(w, "VOP2", VOP2.V_DOT2C_F32_F16_E32, src0=258, vsrc1=4, vdst=8)
    for lane in range(LANES):
        for row, start in ((9, 6), (8, 8)):
            total = view(int(before[start, lane]), "f32")
            for shift in (0, 16):
                x, y = (np.float32(view(int(before[source, lane]) >> shift, "f16")) for source in (2, 4))
                total = fma(x, y, total)
            assert int(w.v[row, lane]) == bits_of(total, "f32")


def divided(kind, numerator, denominator):
    """The steps that the compiler makes of a division, with 64 pairs at a time."""
    w, wide = wave(), 2 if kind == "f64" else 1
    names = {name: f"V_{name}_{kind.upper()}" for name in ("DIV_SCALE", "RCP", "FMA", "MUL", "DIV_FMAS", "DIV_FIXUP")}

    def put(row, value):
        w.v[row : row + wide] = np.ascontiguousarray(value).view(np.uint32).reshape(-1, wide).T

    def op(name, to, *from_, form="VOP3", **more):
        sources = {f"src{i}": 256 + abs(row) for i, row in enumerate(from_)}
        negative = sum((row < 0) << i for i, row in enumerate(from_))
        family = VOP3SD if form == "VOP3SD" else VOP3
        code = next(code for code in family if code.name in (names[name], names[name] + "_E64"))
        execute(w, form, code, vdst=to, neg=negative, **sources, **more)

    put(2, denominator), put(4, numerator), put(20, np.ones(LANES, KINDS[kind]))
    op("DIV_SCALE", 6, 2, 2, 4, form="VOP3SD", sdst=60)
    op("DIV_SCALE", 8, 4, 2, 4, form="VOP3SD", sdst=106)
    op("RCP", 10, 6)
    for _ in range(2):
        op("FMA", 12, -6, 10, 20)
        op("FMA", 10, 10, 12, 10)
    op("MUL", 14, 8, 10)
    op("FMA", 16, -6, 14, 8)
    if kind == "f32":
        op("FMA", 14, 16, 10, 14)
        op("FMA", 16, -6, 14, 8)
    op("DIV_FMAS", 16, 16, 10, 14)
    op("DIV_FIXUP", 18, 16, 2, 4)
    return np.ascontiguousarray(w.v[18 : 18 + wide].T).view(KINDS[kind])[:, 0]


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_a_division_is_rounded_once(name):
    rng, kind = np.random.default_rng(3), KINDS[name]
    reach = 60 if name == "f32" else 500
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, float(np.finfo(kind).max), 1.0, 3.0, -1e-30, 1e30]
    sizes = np.ldexp(rng.uniform(-2, 2, (2, 4 * LANES)), rng.integers(-reach, reach, (2, 4 * LANES)))
    far = np.ldexp(rng.uniform(-2, 2, (2, LANES)), rng.integers(-2 * reach, 2 * reach, (2, LANES)))
    pairs = np.concatenate([sizes.T, far.T, [(a, b) for a in special for b in special]]).astype(kind)
    for start in range(0, len(pairs) // LANES * LANES, LANES):
        numerator, denominator = pairs[start : start + LANES].T.copy()
        got = divided(name, numerator, denominator)
        for n, d, quotient in zip(numerator, denominator, got, strict=True):
            with np.errstate(all="ignore"):
                want = n / d
                if np.isfinite(n) and np.isfinite(d) and d and n:
                    want = nearest(Fraction(float(n)) / Fraction(float(d)), kind)
            if abs(want) >= np.finfo(kind).tiny or want == 0 or np.isnan(want):
                assert np.isnan(want) == np.isnan(quotient)
                assert np.isnan(want) or (quotient == want and np.signbit(quotient) == np.signbit(want)), (n, d)
            else:
                # Back from the scale, a denormal is rounded a second time.
                assert abs(bits_of(quotient, name) - bits_of(want, name)) <= 1, (n, d)


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_the_smaller_number_and_the_larger_one(name):
    """By the bits: a signalling NaN becomes a quiet one before all, a number wins over NaN, and -0 is below +0."""
    kind, size = KINDS[name], np.dtype(KINDS[name]).itemsize
    digits = {2: 10, 4: 23, 8: 52}[size]
    sign, infinite = 1 << 8 * size - 1, ((1 << 8 * size - 1 - digits) - 1) << digits
    quiet = 1 << digits - 1
    values = [0, sign, 1, sign | 1, infinite, sign | infinite, infinite | 1, infinite | quiet | 5, sign | infinite | 7]
    values += [1 << digits, sign | 1 << digits, 123 << digits - 5]

    def is_nan(bits):
        return bits & ~sign > infinite

    def order(bits):
        return -(bits & ~sign) - 1 if bits & sign else bits

    pairs = [(a, b) for a in values for b in values]
    a, b = (np.array(column, f"u{size}").view(kind) for column in zip(*pairs, strict=True))
    for compute, choose in ((floats.minimum, min), (floats.maximum, max)):
        for (x, y), got in zip(pairs, floats.bits_of(compute(a, b)).tolist(), strict=True):
            signals = [bits for bits in (x, y) if is_nan(bits) and not bits & quiet]
            if signals:
                want = signals[0] | quiet
            elif is_nan(x) or is_nan(y):
                want = y if is_nan(x) else x
            else:
                want = choose(x, y, key=order)
            assert got == want, (hex(x), hex(y), hex(got), hex(want))


@pytest.mark.parametrize(("kind", "is_ocp", "digits", "bias", "largest"), [
    ("FP8", True, 3, 7, 448.0), ("FP8_FNUZ", False, 3, 8, 240.0), ("BF8", True, 2, 15, 57344.0),
    ("BF8_FNUZ", False, 2, 16, 57344.0),
])  # fmt: skip
def test_floats_of_eight_bits(kind, is_ocp, digits, bias, largest):
    table = floats.small_floats(kind)
    assert np.nanmax(table[np.isfinite(table)]) == largest
    rng = np.random.default_rng(4)
    values = np.concatenate(
        [table[np.isfinite(table)], np.ldexp(rng.uniform(-1, 1, 3000), rng.integers(-22, 17, 3000))]
    )
    values = np.concatenate([values, (table[:100] + table[1:101]) / 2]).astype(np.float32)
    values = values[np.isfinite(values)]
    for value, code in zip(values, floats.to_small(values, kind).tolist(), strict=True):
        exact = abs(Fraction(float(value)))
        power = max(exact.numerator.bit_length() - exact.denominator.bit_length() + 1, 2 - bias) if exact else 2 - bias
        while exact < Fraction(2) ** power and power > 1 - bias:
            power -= 1
        rounded = round(exact / Fraction(2) ** (power - digits)) * Fraction(2) ** (power - digits)
        if rounded > largest:
            assert not np.isfinite(table[code])
        else:
            assert abs(table[code]) == rounded, (value, table[code])
            assert (code >> 7) == (np.signbit(value) and (is_ocp or rounded > 0))


def test_doubles_of_other_lanes():
    """DPP of operands with two words moves both."""
    w = wave()
    w.v[2:12] = np.random.default_rng(1).integers(0, 1 << 32, (10, LANES), np.uint32)
    before = w.v.copy()
    fields = {"src0": 250, "vsrc0": 2, "dpp": 0x153, "row_mask": 15, "bank_mask": 15}
    execute(w, "VOP1_DPP16", VOP1.V_MOV_B64_E32, vdst=8, **fields)
    for lane in range(LANES):
        assert [int(w.v[row, lane]) for row in (8, 9)] == [int(before[row, lane & ~15 | 3]) for row in (2, 3)]
    # In place, with the first operand's register as the second operand too.
    w.vf[2] = np.arange(LANES)
    execute(w, "VOP2_DPP16", VOP2.V_ADD_F32_E32, vdst=2, vsrc1=2, **fields | {"dpp": 0x111, "bc": 1})
    assert w.vf[2].tolist() == [lane + (lane - 1 if lane % 16 else 0) for lane in range(LANES)]


@pytest.mark.parametrize(("op", "fields"), [
    ("V_DOT2_I32_I16", {"opsel_hi": 3, "neg": 1}), ("V_DOT4_I32_I8", {"opsel_hi": 3, "clmp": 1}),
    ("V_DOT2_F32_F16", {"opsel_hi": 3, "neg_hi": 2}), ("V_DOT8_U32_U4", {"opsel_hi": 3, "opsel": 1}),
    ("V_PK_ADD_U16", {"opsel_hi": 3, "neg": 1}), ("V_DOT2_U32_U16", {"opsel_hi": 0}),
])  # fmt: skip
def test_a_modifier_that_is_not_modelled_is_refused(op, fields):
    with pytest.raises(UnsupportedInstruction, match=r"with (a modifier|the sign)"):
        execute(wave(), "VOP3P", VOP3P[op], src0=258, src1=260, src2=262, vdst=8, opsel_hi2=1, **fields)
    with pytest.raises(UnsupportedInstruction, match="half of an operand"):
        execute(wave(), "VOP3", VOP3.V_ADD_F32_E64, src0=258, src1=260, vdst=8, opsel=1)


def test_bits_of_two_over_pi_and_angles_in_turns():
    # 2 / pi by the series of Gregory and Euler's arctangents, and its bits from a place on.
    def arctan(n, one):
        total, term, odd = 0, one // n, 1
        while term:
            total, term, odd = total + (term // odd if odd % 4 == 1 else -(term // odd)), term // n**2, odd + 2
        return total

    one = 1 << 1400
    two_over_pi = Fraction(2 * one, 4 * (arctan(2, one) + arctan(3, one)))
    values = np.array([1.5, 2.0**60, -(2.0**900), 2.0**1000])
    for segment in range(4):
        got = floats.trig_preop(values, np.full(4, segment, np.uint32))
        for value, part in zip(values, got, strict=True):
            shift = 53 * segment + max(0, int(np.frexp(value)[1]) + 1022 - 1077)
            bits = int(two_over_pi * 2 ** (shift + 53)) & (1 << 53) - 1
            scale = -53 - shift + (128 if int(np.frexp(value)[1]) + 1022 >= 1968 else 0)
            assert Fraction(float(part)) == bits * Fraction(2) ** scale
    w = wave()
    w.vf[2] = np.linspace(-3, 3, LANES)
    execute(w, "VOP1", VOP1.V_SIN_F32_E32, src0=258, vdst=4)
    assert np.allclose(w.vf[4], np.sin(2 * np.pi * w.vf[2].astype(np.float64)), atol=1e-6)
