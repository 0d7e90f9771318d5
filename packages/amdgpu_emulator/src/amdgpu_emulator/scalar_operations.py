"""What scalar instructions compute: Python's whole numbers in, result and condition code out.

A row has the bits of the result and of the operands (0: no result), and a function of the operands that returns the
result and the new condition code, or ``None`` where it stays. Results are cut to their bits afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass

Outcome = tuple[int, int | None]


@dataclass(frozen=True)
class ScalarOperation:
    """One opcode."""

    bits: int
    """Of the result; 0 if there is none."""
    operands: tuple[int, ...]
    """Bits of each."""
    compute: Callable[..., Outcome]
    takes_scc: bool = False
    """Whether the condition code is the last argument."""


M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def s32(value: int) -> int:
    """Return a word as a signed number."""
    return value - (1 << 32) if value >> 31 else value


def s64(value: int) -> int:
    """Return two words as a signed number."""
    return value - (1 << 64) if value >> 63 else value


def s16(value: int) -> int:
    """Return the lower half of a word as a signed number."""
    value &= 0xFFFF
    return value - (1 << 16) if value >> 15 else value


def _flagged(bits: int, operands: tuple[int, ...], compute: Callable[..., int]) -> ScalarOperation:
    """Return an operation whose condition code says whether the result is not 0."""
    mask = (1 << bits) - 1

    def run(*values: int) -> Outcome:
        result = compute(*values) & mask
        return result, int(result != 0)

    return ScalarOperation(bits, operands, run)


def _shift(bits: int, compute: Callable[[int, int], int]) -> ScalarOperation:
    return _flagged(bits, (bits, 32), lambda a, b: compute(a, b & (bits - 1)))


def _plain(bits: int, operands: tuple[int, ...], compute: Callable[..., int]) -> ScalarOperation:
    return ScalarOperation(bits, operands, lambda *values: (compute(*values), None))


def _signed_sum(sign: int) -> Callable[[int, int], Outcome]:
    def run(a: int, b: int) -> Outcome:
        total = s32(a) + sign * s32(b)
        return total & M32, int(not -(1 << 31) <= total < 1 << 31)

    return run


def _compare(bits: int, test: Callable[[int, int], bool], value_of: Callable[[int], int] = int) -> ScalarOperation:
    return ScalarOperation(0, (bits, bits), lambda a, b: (0, int(test(value_of(a), value_of(b)))))


def _field(value: int, control: int, bits: int) -> tuple[int, int]:
    """Return the bits that a control word names, and their number."""
    offset, width = control & (bits - 1), control >> 16 & 0x7F
    return (value >> offset) & ((1 << width) - 1), width


def _bfe_signed(value: int, control: int) -> int:
    field, width = _field(s32(value) & M64, control, 32)
    return field - (1 << width) if width and field >> (width - 1) & 1 else field


def _lowest(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else M32


_SCALAR_CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b, "LG": lambda a, b: a != b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b,
}  # fmt: skip


SCALAR_OPERATIONS: dict[str, ScalarOperation] = {
    "S_MOV_B32": _plain(32, (32,), lambda a: a),
    "S_MOV_B64": _plain(64, (64,), lambda a: a),
    "S_CMOV_B32": ScalarOperation(32, (32, 32), lambda a, old, scc: (a if scc else old, None), takes_scc=True),
    "S_NOT_B32": _flagged(32, (32,), lambda a: ~a),
    "S_NOT_B64": _flagged(64, (64,), lambda a: ~a),
    "S_ABS_I32": _flagged(32, (32,), lambda a: abs(s32(a))),
    "S_BREV_B32": _plain(32, (32,), lambda a: int(f"{a:032b}"[::-1], 2)),
    "S_BCNT1_I32_B32": _flagged(32, (32,), int.bit_count),
    "S_BCNT1_I32_B64": _flagged(32, (64,), int.bit_count),
    "S_FF1_I32_B32": _plain(32, (32,), _lowest),
    "S_FF1_I32_B64": _plain(32, (64,), _lowest),
    "S_FLBIT_I32_B32": _plain(32, (32,), lambda a: 32 - a.bit_length() if a else M32),
    "S_FLBIT_I32_B64": _plain(32, (64,), lambda a: 64 - a.bit_length() if a else M32),
    "S_SEXT_I32_I8": _plain(32, (32,), lambda a: ((a & 0xFF) ^ 0x80) - 0x80),
    "S_SEXT_I32_I16": _plain(32, (32,), s16),
    "S_BITSET0_B32": _plain(32, (32, 32), lambda a, old: old & ~(1 << (a & 31))),
    "S_BITSET1_B32": _plain(32, (32, 32), lambda a, old: old | 1 << (a & 31)),
    "S_ADD_U32": ScalarOperation(32, (32, 32), lambda a, b: ((a + b) & M32, (a + b) >> 32)),
    "S_SUB_U32": ScalarOperation(32, (32, 32), lambda a, b: ((a - b) & M32, int(b > a))),
    "S_ADDC_U32": ScalarOperation(32, (32, 32), lambda a, b, c: ((a + b + c) & M32, (a + b + c) >> 32), takes_scc=True),
    "S_SUBB_U32": ScalarOperation(32, (32, 32), lambda a, b, c: ((a - b - c) & M32, int(b + c > a)), takes_scc=True),
    "S_ADD_I32": ScalarOperation(32, (32, 32), _signed_sum(1)),
    "S_SUB_I32": ScalarOperation(32, (32, 32), _signed_sum(-1)),
    "S_MUL_I32": _plain(32, (32, 32), lambda a, b: a * b),
    "S_MUL_HI_U32": _plain(32, (32, 32), lambda a, b: a * b >> 32),
    "S_MUL_HI_I32": _plain(32, (32, 32), lambda a, b: s32(a) * s32(b) >> 32),
    "S_MIN_I32": ScalarOperation(32, (32, 32), lambda a, b: (min(s32(a), s32(b)), int(s32(a) < s32(b)))),
    "S_MAX_I32": ScalarOperation(32, (32, 32), lambda a, b: (max(s32(a), s32(b)), int(s32(a) >= s32(b)))),
    "S_MIN_U32": ScalarOperation(32, (32, 32), lambda a, b: (min(a, b), int(a < b))),
    "S_MAX_U32": ScalarOperation(32, (32, 32), lambda a, b: (max(a, b), int(a >= b))),
    **{
        f"S_{name}_B{bits}": _flagged(bits, (bits, bits), compute)
        for bits in (32, 64)
        for name, compute in (
            ("AND", lambda a, b: a & b),
            ("OR", lambda a, b: a | b),
            ("XOR", lambda a, b: a ^ b),
            ("ANDN2", lambda a, b: a & ~b),
            ("ORN2", lambda a, b: a | ~b),
            ("NAND", lambda a, b: ~(a & b)),
            ("NOR", lambda a, b: ~(a | b)),
            ("XNOR", lambda a, b: ~(a ^ b)),
        )
    },
    **{
        f"S_{name}": _shift(bits, compute)
        for name, bits, compute in (
            ("LSHL_B32", 32, lambda a, n: a << n),
            ("LSHL_B64", 64, lambda a, n: a << n),
            ("LSHR_B32", 32, lambda a, n: a >> n),
            ("LSHR_B64", 64, lambda a, n: a >> n),
            ("ASHR_I32", 32, lambda a, n: s32(a) >> n),
            ("ASHR_I64", 64, lambda a, n: s64(a) >> n),
        )
    },
    **{
        f"S_LSHL{n}_ADD_U32": ScalarOperation(
            32, (32, 32), lambda a, b, n=n: (((a << n) + b) & M32, int((a << n) + b > M32))
        )
        for n in (1, 2, 3, 4)
    },
    "S_BFE_U32": _flagged(32, (32, 32), lambda a, control: _field(a, control, 32)[0]),
    "S_BFE_I32": _flagged(32, (32, 32), _bfe_signed),
    "S_BFE_U64": _flagged(64, (64, 32), lambda a, control: _field(a, control, 64)[0]),
    "S_BFM_B32": _plain(32, (32, 32), lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "S_BFM_B64": _plain(64, (32, 32), lambda a, b: ((1 << (a & 63)) - 1) << (b & 63)),
    "S_PACK_LL_B32_B16": _plain(32, (32, 32), lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16),
    "S_PACK_LH_B32_B16": _plain(32, (32, 32), lambda a, b: (a & 0xFFFF) | (b >> 16) << 16),
    "S_PACK_HH_B32_B16": _plain(32, (32, 32), lambda a, b: a >> 16 | (b >> 16) << 16),
    "S_CSELECT_B32": ScalarOperation(32, (32, 32), lambda a, b, scc: (a if scc else b, None), takes_scc=True),
    "S_CSELECT_B64": ScalarOperation(64, (64, 64), lambda a, b, scc: (a if scc else b, None), takes_scc=True),
    **{f"S_CMP_{name}_U32": _compare(32, test) for name, test in _SCALAR_CONDITIONS.items()},
    **{f"S_CMP_{name}_I32": _compare(32, test, s32) for name, test in _SCALAR_CONDITIONS.items()},
    "S_CMP_EQ_U64": _compare(64, _SCALAR_CONDITIONS["EQ"]),
    "S_CMP_LG_U64": _compare(64, _SCALAR_CONDITIONS["LG"]),
    "S_BITCMP0_B32": _compare(32, lambda a, b: not a >> (b & 31) & 1),
    "S_BITCMP1_B32": _compare(32, lambda a, b: bool(a >> (b & 31) & 1)),
}

WITH_16_BITS: dict[str, ScalarOperation] = {
    "S_MOVK_I32": _plain(32, (32, 32), lambda old, k: k),
    "S_ADDK_I32": SCALAR_OPERATIONS["S_ADD_I32"],
    "S_MULK_I32": SCALAR_OPERATIONS["S_MUL_I32"],
    **{
        f"S_CMPK_{name}_{kind}": SCALAR_OPERATIONS[f"S_CMP_{name}_{kind}"]
        for name in _SCALAR_CONDITIONS
        for kind in ("I32", "U32")
    },
}
"""Instructions with a constant of 16 bits, extended to 32: the register's old value and the constant in."""
