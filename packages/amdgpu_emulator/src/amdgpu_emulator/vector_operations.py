"""What vector instructions compute: one row an opcode, for all lanes at once.

A row names the types of the result and of the operands. ``mask`` is a bit a lane; an operand ``old`` is what the
register of the result held. Names are without the suffixes of encodings (_E32, _E64, _SDWA).
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np

from amdgpu_emulator import floats
from amdgpu_emulator.memory import Array
from amdgpu_emulator.scalar_operations import LOGIC, SCALAR_OPERATIONS

U32, U64 = np.uint32, np.uint64


@dataclass(frozen=True)
class VectorOperation:
    """One opcode: type of the result, types of the operands, and the function between them."""

    result: str
    operands: tuple[str, ...]
    compute: Callable[..., Any]
    carries: bool = False
    """Whether it gives a mask besides the result: the function returns both."""


def _row(types: str, compute: Callable[..., Any], carries: bool = False) -> VectorOperation:
    result, *operands = types.split()
    return VectorOperation(result, tuple(operands), compute, carries)


u64: Callable[[Array], Array] = methodcaller("astype", U64)
i64: Callable[[Array], Array] = methodcaller("astype", np.int64)


def _by32(count: Array) -> Array:
    """Return the bits of a shift count that hardware looks at."""
    return count & U32(31)


def _add_carry(a: Array, b: Array, carry: Array | int = 0) -> tuple[Array, Array]:
    total = u64(a) + u64(b) + np.uint64(carry)
    return total.astype(U32), total >> U64(32) != 0


def _sub_borrow(a: Array, b: Array, borrow: Array | int = 0) -> tuple[Array, Array]:
    total, carried = _add_carry(a, ~b, ~np.asarray(borrow, bool))
    return total, ~carried


def _mad_u64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = u64(a) * u64(b)
    total = product + c
    return total, total < product


def _mad_i64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = i64(a) * i64(b)
    total = product + c
    # The flag is the sign of the sum in 65 bits.
    return total, (total < 0) ^ (((product ^ total) & (c ^ total)) < 0)


def perm(a: Array, b: Array, selectors: Array) -> Array:
    """Return bytes of two words, as the four selectors say."""
    if selectors.size == 1 and selectors[0] == 0x05040100:
        return b & U32(0xFFFF) | a << U32(16)
    if selectors.size == 1 and selectors[0] == 0x07060302:
        return b >> U32(16) | a & U32(0xFFFF0000)
    operands = (b, a) if selectors.size == 1 else (b, a, selectors)
    bytes_ = np.stack(np.broadcast_arrays(*operands)[:2], axis=1).view(np.uint8)
    if selectors.size == 1 and not selectors[0] & U32(0xF8F8F8F8):
        # Most kernels have selectors in a scalar register, and these bytes alone.
        return np.take(bytes_, selectors.view(np.uint8), axis=1).view(U32)[:, 0]
    # From 8 on the signs of the halves, then 0, then all ones.
    signs, ends = np.where(bytes_[:, 1::2] >> 7, 0xFF, 0), np.broadcast_to(np.array([0, 0xFF]), (len(bytes_), 2))
    choices = np.concatenate([bytes_, signs, ends], axis=1).astype(np.uint8)
    wanted = np.broadcast_to(selectors, len(bytes_)).copy().view(np.uint8).reshape(-1, 4)
    return np.take_along_axis(choices, np.minimum(wanted, 13), axis=1).view(U32)[:, 0]


def of_bf16(words: Array) -> Array:
    """Return the two numbers of bf16 in each word as floats."""
    return (np.ascontiguousarray(words).view(np.uint16).astype(U32) << 16).view(np.float32)


def bf16(value: Array) -> Array:
    """Return the bits of a float as bf16, to the nearest, ties to even."""
    bits = value.view(U32)
    rounded = (bits + U32(0x7FFF) + (bits >> U32(16) & U32(1))) >> U32(16)
    return np.where(np.isnan(value), bits >> U32(16) | U32(0x40), rounded).astype(U32)


def half_to_zero(value: Array) -> Array:
    """Return the bits of a float as fp16, toward zero."""
    near = value.astype(np.float16)
    beyond = np.abs(near.astype(np.float32)) > np.abs(value)
    bits = near.view(np.uint16)
    return np.where(beyond, bits - np.uint16(1), bits).astype(U32)


def _converter(kind: str) -> Callable[[Array], Array]:
    """Return the conversion to a type; of floats to integers toward zero, held within the type; not a number is 0."""
    type_ = np.dtype(kind.replace(kind[1:], str(int(kind[1:]) // 8)))
    if kind[0] == "f":
        return lambda value: value.astype(type_)

    def convert(value: Array) -> Array:
        limits, numbers = np.iinfo(type_), np.nan_to_num(value.astype(np.float64), nan=0.0)
        return np.clip(np.trunc(numbers), limits.min, limits.max).astype(np.int64).astype(type_)

    return convert


def _bfe_u(value: Array, offset: Array, width: Array) -> Array:
    bits = (U64(1) << u64(width & U32(31))) - U64(1)
    return (u64(value) >> u64(offset & U32(31)) & bits).astype(U32)


def _bfe_i(value: Array, offset: Array, width: Array) -> Array:
    count = i64(width & U32(31))
    left = np.int64(64) - count
    return np.where(count == 0, 0, i64(value) >> i64(offset & U32(31)) << left >> left).astype(np.int32)


def _i24(value: Array) -> Array:
    return i64(value) << 40 >> 40


def _u24(value: Array) -> Array:
    return u64(value) & U64(0xFFFFFF)


def _median(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _as_scalar(name: str) -> Callable[..., Array]:
    """Return what a scalar instruction computes, lane by lane: for what is rare."""
    compute = SCALAR_OPERATIONS[name].compute
    lanes = np.frompyfunc(lambda *values: compute(*values)[0], len(SCALAR_OPERATIONS[name].operands), 1)
    return lambda *values: lanes(*values).astype(U32)


def _by_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function that is computed in doubles, and rounded."""
    return lambda value: function(value.astype(np.float64)).astype(value.dtype)


def _in_turns(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function of an angle in turns; the hardware's has 0 for what is far away."""
    return lambda value: np.where(np.abs(value) > 256, 0, function(np.remainder(value, 1) * (2 * np.pi)))


def _dot(kind: str, bits: int) -> Callable[[Array, Array, Array], Array]:
    """Return the sum of products of the parts of two words, and of the third operand, which has its type."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        if kind == "f":
            (a0, a1), (b0, b1) = ([part.view(np.float16).astype(c.dtype) for part in _parts(x, 16)] for x in (a, b))
            return floats.fma(a1, b1, floats.fma(a0, b0, c))
        total = i64(c)
        for left, right in zip(_parts(a, bits), _parts(b, bits), strict=True):
            shift = 64 - bits if kind == "i" else 0
            total = total + (i64(left) << shift >> shift) * (i64(right) << shift >> shift)
        return total.astype(c.dtype)

    return compute


def _parts(word: Array, bits: int) -> list[Array]:
    parts = [word >> U32(first) & U32((1 << bits) - 1) for first in range(0, 32, bits)]
    return [part.astype(np.uint16) for part in parts] if bits == 16 else parts


def _pair_of(half: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """Return two values, each made a half, in one word."""
    return lambda a, b: half(a).astype(U32) | half(b).astype(U32) << U32(16)


def _of_small(kind: str) -> Callable[[Array], Array]:
    return lambda a: floats.small_floats(kind)[a & U32(255)]


def _of_two_small(kind: str) -> Callable[[Array], Array]:
    return lambda a: floats.small_floats(kind)[np.stack([a & U32(255), a >> U32(8) & U32(255)], axis=-1)].view(U64)[
        :, 0
    ]


def _two_small(kind: str) -> Callable[[Array, Array], Array]:
    return lambda a, b: (floats.to_small(a, kind) | floats.to_small(b, kind) << U32(8)).astype(np.uint16)


def _of_three(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Array]:
    return lambda a, b, c: function(function(a, b), c)


_OF_EVERY_FLOAT: dict[str, tuple[str, Callable[..., Any]]] = {
    "ADD": ("{0} {0} {0}", np.add), "SUB": ("{0} {0} {0}", np.subtract), "MUL": ("{0} {0} {0}", np.multiply),
    "SUBREV": ("{0} {0} {0}", lambda a, b: b - a), "FMA": ("{0} {0} {0} {0}", floats.fma),
    "MIN": ("{0} {0} {0}", floats.minimum), "MAX": ("{0} {0} {0}", floats.maximum),
    "MIN3": ("{0} {0} {0} {0}", _of_three(floats.minimum)), "MAX3": ("{0} {0} {0} {0}", _of_three(floats.maximum)),
    "MED3": ("{0} {0} {0} {0}", floats.median), "FLOOR": ("{0} {0}", np.floor), "CEIL": ("{0} {0}", np.ceil),
    "TRUNC": ("{0} {0}", np.trunc), "RNDNE": ("{0} {0}", np.rint), "FRACT": ("{0} {0}", floats.fraction_part),
    "RCP": ("{0} {0}", _by_double(lambda a: 1 / a)), "RSQ": ("{0} {0}", _by_double(lambda a: 1 / np.sqrt(a))),
    "SQRT": ("{0} {0}", np.sqrt), "EXP": ("{0} {0}", np.exp2), "LOG": ("{0} {0}", np.log2),
    "SIN": ("{0} {0}", _by_double(_in_turns(np.sin))), "COS": ("{0} {0}", _by_double(_in_turns(np.cos))),
    "DIV_FIXUP": ("{0} {0} {0} {0}", floats.div_fixup), "FREXP_MANT": ("{0} {0}", floats.frexp_mantissa),
    "CMP_CLASS": ("mask {0} u32", floats.has_class), "FMAC": ("{0} {0} {0} old", floats.fma),
    "MAD": ("{0} {0} {0} {0}", lambda a, b, c: a * b + c),
    "DIV_FMAS": ("{0} {0} {0} {0} mask", floats.div_fmas),
}  # fmt: skip
"""What halves, floats and doubles have alike; of some opcodes the hardware has no double."""
_OF_EVERY_INTEGER: dict[str, tuple[int, Callable[..., Any]]] = {
    "MIN": (2, np.minimum), "MAX": (2, np.maximum), "MED3": (3, _median), "ADD": (2, np.add), "SUB": (2, np.subtract),
    "SUBREV": (2, lambda a, b: b - a), "MUL_LO": (2, np.multiply), "MAD": (3, lambda a, b, c: a * b + c),
    "MIN3": (3, _of_three(np.minimum)), "MAX3": (3, _of_three(np.maximum)),
}  # fmt: skip
"""What whole numbers of 16 and 32 bits have alike; of some opcodes the hardware has not all."""
_SHIFTS: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "LSHLREV_B": ("u", np.left_shift), "LSHRREV_B": ("u", np.right_shift), "ASHRREV_I": ("i", np.right_shift),
}  # fmt: skip


def _shift(bits: int, shift: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return the shift of the second operand; of the count hardware looks at the lowest bits alone."""
    mask = np.dtype(f"u{min(bits, 32) // 8}").type(bits - 1)
    return lambda count, value: shift(value, (count & mask).astype(value.dtype, copy=False))


_COMPUTATIONS: dict[str, VectorOperation] = {
    **{
        f"V_{name}_{kind.upper()}": _row(types.format(kind), compute)
        for kind in ("f16", "f32", "f64")
        for name, (types, compute) in _OF_EVERY_FLOAT.items()
    },
    **{
        f"V_{name}_{kind.upper()}": _row(" ".join([kind] * (1 + count)), compute)
        for kind in ("u16", "i16", "u32", "i32")
        for name, (count, compute) in _OF_EVERY_INTEGER.items()
    },
    **{
        f"V_{name}{bits}": _row(f"{kind}{bits} u{min(bits, 32)} {kind}{bits}", _shift(bits, compute))
        for bits in (16, 32, 64)
        for name, (kind, compute) in _SHIFTS.items()
    },
    **{
        f"V_DIV_SCALE_{kind.upper()}": _row(f"{kind} {kind} {kind} {kind}", floats.div_scale, True)
        for kind in ("f32", "f64")
    },
    # Moves and choices
    **{
        f"V_{name}": _row("u32 u32", lambda a: a)
        for name in ("MOV_B32", "ACCVGPR_READ", "ACCVGPR_WRITE", "ACCVGPR_MOV_B32")
    },
    "V_MOV_B64": _row("u64 u64", lambda a: a),
    "V_CNDMASK_B32": _row("f32 f32 f32 mask", lambda a, b, m: np.where(m, b, a)),
    # Bits
    "V_NOT_B32": _row("u32 u32", np.invert),
    **{f"V_{name}_B32": _row("u32 u32 u32", LOGIC[name]) for name in ("AND", "OR", "XOR", "XNOR")},
    "V_AND_OR_B32": _row("u32 u32 u32 u32", lambda a, b, c: a & b | c),
    "V_OR3_B32": _row("u32 u32 u32 u32", lambda a, b, c: a | b | c),
    "V_BFI_B32": _row("u32 u32 u32 u32", lambda a, b, c: a & b | ~a & c),
    "V_BFREV_B32": _row("u32 u32", _as_scalar("S_BREV_B32")),
    "V_FFBH_U32": _row("u32 u32", _as_scalar("S_FLBIT_I32_B32")),
    "V_FFBH_I32": _row("u32 i32", lambda a: _as_scalar("S_FLBIT_I32_B32")(a ^ a >> 31)),
    "V_FFBL_B32": _row("u32 u32", _as_scalar("S_FF1_I32_B32")),
    "V_BCNT_U32_B32": _row("u32 u32 u32", lambda a, b: np.bitwise_count(a).astype(U32) + b),
    "V_BFM_B32": _row("u32 u32 u32", lambda a, b: ((U32(1) << _by32(a)) - U32(1)) << _by32(b)),
    "V_PERM_B32": _row("u32 u32 u32 u32", perm),
    "V_ALIGNBIT_B32": _row(
        "u32 u32 u32 u32", lambda a, b, c: ((u64(a) << U64(32) | u64(b)) >> u64(_by32(c))).astype(U32)
    ),
    "V_ALIGNBYTE_B32": _row(
        "u32 u32 u32 u32", lambda a, b, c: ((u64(a) << U64(32) | u64(b)) >> U64(8) * u64(c & U32(3))).astype(U32)
    ),
    "V_BFE_U32": _row("u32 u32 u32 u32", _bfe_u),
    "V_BFE_I32": _row("i32 i32 u32 u32", _bfe_i),
    # Whole numbers
    "V_ADD3_U32": _row("u32 u32 u32 u32", lambda a, b, c: a + b + c),
    "V_ADD_LSHL_U32": _row("u32 u32 u32 u32", lambda a, b, c: (a + b) << _by32(c)),
    "V_LSHL_ADD_U32": _row("u32 u32 u32 u32", lambda a, b, c: (a << _by32(b)) + c),
    "V_LSHL_OR_B32": _row("u32 u32 u32 u32", lambda a, b, c: (a << _by32(b)) | c),
    "V_XAD_U32": _row("u32 u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    "V_LSHL_ADD_U64": _row("u64 u64 u32 u64", lambda a, b, c: (a << u64(b & U32(7))) + c),
    "V_MUL_HI_U32": _row("u32 u32 u32", lambda a, b: (u64(a) * u64(b) >> U64(32)).astype(U32)),
    "V_MUL_HI_I32": _row("i32 i32 i32", lambda a, b: (i64(a) * i64(b) >> 32).astype(np.int32)),
    "V_MUL_I32_I24": _row("i32 i32 i32", lambda a, b: (_i24(a) * _i24(b)).astype(np.int32)),
    "V_MUL_U32_U24": _row("u32 u32 u32", lambda a, b: (_u24(a) * _u24(b)).astype(U32)),
    "V_MAD_I32_I24": _row("i32 i32 i32 i32", lambda a, b, c: (_i24(a) * _i24(b)).astype(np.int32) + c),
    "V_MAD_U32_U24": _row("u32 u32 u32 u32", lambda a, b, c: (_u24(a) * _u24(b)).astype(U32) + c),
    "V_SAD_U32": _row("u32 u32 u32 u32", lambda a, b, c: np.where(a > b, a - b, b - a) + c),
    "V_ADD_CO_U32": _row("u32 u32 u32", _add_carry, carries=True),
    "V_SUB_CO_U32": _row("u32 u32 u32", _sub_borrow, carries=True),
    "V_SUBREV_CO_U32": _row("u32 u32 u32", lambda a, b: _sub_borrow(b, a), carries=True),
    "V_ADDC_CO_U32": _row("u32 u32 u32 mask", _add_carry, carries=True),
    "V_SUBB_CO_U32": _row("u32 u32 u32 mask", _sub_borrow, carries=True),
    "V_SUBBREV_CO_U32": _row("u32 u32 u32 mask", lambda a, b, c: _sub_borrow(b, a, c), carries=True),
    "V_MAD_U64_U32": _row("u64 u32 u32 u64", _mad_u64, carries=True),
    "V_MAD_I64_I32": _row("i64 i32 i32 i64", _mad_i64, carries=True),
    # Floats
    "V_MAC_F32": _row("f32 f32 f32 old", lambda a, b, c: a * b + c),
    "V_FMAMK_F32": _row("f32 f32 f32 f32", lambda a, b, literal: floats.fma(a, literal, b)),
    "V_FMAAK_F32": _row("f32 f32 f32 f32", floats.fma),
    "V_MADMK_F32": _row("f32 f32 f32 f32", lambda a, b, literal: a * literal + b),
    "V_MADAK_F32": _row("f32 f32 f32 f32", lambda a, b, literal: a * b + literal),
    "V_MUL_LEGACY_F32": _row(
        "f32 f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b).astype(np.float32)
    ),
    "V_FREXP_EXP_I16_F16": _row("i16 f16", lambda a: floats.frexp_exponent(a).astype(np.int16)),
    **{f"V_FREXP_EXP_I32_{kind.upper()}": _row(f"i32 {kind}", floats.frexp_exponent) for kind in ("f32", "f64")},
    **{f"V_LDEXP_F{bits}": _row(f"f{bits} f{bits} i{min(bits, 32)}", floats.ldexp) for bits in (16, 32, 64)},
    "V_TRIG_PREOP_F64": _row("f64 f64 u32", floats.trig_preop),
    "V_PK_FMAC_F16": _row("f16 f16 f16 old", floats.fma),
    "V_DOT2C_F32_F16": _row("f32 u32 u32 old", _dot("f", 16)),
    "V_DOT2_F32_F16": _row("f32 u32 u32 f32", _dot("f", 16)),
    **{
        f"V_DOT{32 // bits}{form}_{kind.upper()}32_{kind.upper()}{bits}": _row(
            f"{kind}32 u32 u32 {third.format(kind)}", _dot(kind, bits)
        )
        for bits in (16, 8, 4)
        for kind in ("i", "u")
        for form, third in (("", "{}32"), ("C", "old"))
    },
    "V_RCP_IFLAG_F32": _row("f32 f32", _by_double(lambda a: 1 / a)),
    # Conversions
    **{
        f"V_CVT_{to.upper()}_{of.upper()}": _row(f"{to} {of}", _converter(to))
        for to in ("u16", "i16", "u32", "i32", "f16", "f32", "f64")
        for of in (("u16", "i16", "u32", "i32") if to[0] == "f" else ()) + ("f16", "f32", "f64")
    },
    "V_CVT_RPI_I32_F32": _row("i32 f32", lambda a: _converter("i32")(np.floor(a.astype("f8") + 0.5))),
    "V_CVT_FLR_I32_F32": _row("i32 f32", lambda a: _converter("i32")(np.floor(a))),
    "V_CVT_PK_U16_U32": _row("u32 u32 u32", _pair_of(lambda a: np.minimum(a, U32(0xFFFF)))),
    "V_CVT_PK_I16_I32": _row("u32 i32 i32", _pair_of(lambda a: np.clip(a, -(2**15), 2**15 - 1).astype(np.uint16))),
    "V_CVT_PKRTZ_F16_F32": _row("u32 f32 f32", _pair_of(half_to_zero)),
    "V_CVT_PK_F16_F32": _row("u32 f32 f32", _pair_of(lambda a: a.astype(np.float16).view(np.uint16))),
    "V_CVT_PK_BF16_F32": _row("u32 f32 f32", _pair_of(bf16)),
    "V_PACK_B32_F16": _row("u32 u16 u16", _pair_of(lambda a: a)),
    **{
        name.format(kind): _row(types, compute(kind))
        for kind in ("FP8", "BF8", "FP8_FNUZ", "BF8_FNUZ")
        for name, types, compute in (
            ("V_CVT_F32_{}", "f32 u32", _of_small),
            ("V_CVT_PK_F32_{}", "u64 u32", _of_two_small),
            ("V_CVT_PK_{}_F32", "u16 f32 f32", _two_small),
        )
    },
    **{
        f"V_CVT_F32_UBYTE{byte}": _row("f32 u32", lambda a, byte=byte: (a >> U32(8 * byte) & U32(255)).astype("f4"))
        for byte in range(4)
    },
}

_CONDITIONS_OF_INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "F": lambda a, b: (a != a) & False, "LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater,
    "NE": np.not_equal, "GE": np.greater_equal, "T": lambda a, b: (a == a) | True,
}  # fmt: skip
_CONDITIONS_OF_FLOATS: dict[str, Callable[[Array, Array], Array]] = {
    **{name: _CONDITIONS_OF_INTEGERS[name] for name in ("LT", "EQ", "LE", "GT", "GE")},
    "LG": lambda a, b: (a < b) | (a > b),
    "O": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "U": lambda a, b: np.isnan(a) | np.isnan(b),
    "NGE": lambda a, b: ~(a >= b), "NLG": lambda a, b: ~((a < b) | (a > b)), "NGT": lambda a, b: ~(a > b),
    "NLE": lambda a, b: ~(a <= b), "NEQ": lambda a, b: ~(a == b), "NLT": lambda a, b: ~(a < b),
}  # fmt: skip
_COMPARISONS = {
    **{f"V_CMP_{name}_{kind.upper()}": _row(f"mask {kind} {kind}", compute)
       for kind in ("u32", "i32", "u64", "i64", "u16", "i16") for name, compute in _CONDITIONS_OF_INTEGERS.items()},
    **{f"V_CMP_{name}_{kind.upper()}": _row(f"mask {kind} {kind}", compute)
       for kind in ("f64", "f32", "f16") for name, compute in _CONDITIONS_OF_FLOATS.items()},
}  # fmt: skip

VECTOR_OPERATIONS: dict[str, VectorOperation] = _COMPUTATIONS | _COMPARISONS
