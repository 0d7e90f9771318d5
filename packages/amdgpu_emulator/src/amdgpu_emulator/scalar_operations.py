"""What scalar instructions compute: one row an opcode, with Python's whole numbers.

A row names the types of the result and of the operands: ``u`` or ``i`` with bits, or ``scc``, the condition code.
An operand that an instruction does not have is what the register of the result held. Results are cut to their type.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Outcome = tuple[int, int | None]
Flag = Callable[..., bool]


@dataclass(frozen=True)
class ScalarOperation:
    """One opcode: types of the result and of the operands, and the function between them.

    The function returns the bits of the result, and the new condition code, or ``None`` where it stays.
    """

    result: str
    operands: tuple[str, ...]
    compute: Callable[..., Outcome]


def _row(types: str, compute: Callable[..., int], flag: Flag | None = None) -> ScalarOperation:
    """Return an operation; ``flag`` makes the condition code of the whole result and the operands."""
    result, *operands = types.split()
    if result == "scc":
        return ScalarOperation(result, tuple(operands), lambda *values: (0, int(compute(*values))))
    mask = (1 << int(result[1:])) - 1

    if flag is None:
        return ScalarOperation(result, tuple(operands), lambda *values: (compute(*values) & mask, None))

    def run(*values: int) -> Outcome:
        whole = compute(*values)
        return whole & mask, int(flag(whole, *values))

    return ScalarOperation(result, tuple(operands), run)


def _is_set(bits: int) -> Flag:
    """Return whether a bit of the result is set."""
    mask = (1 << bits) - 1
    return lambda whole, *_: whole & mask != 0


def _is_beyond(low: int, bits: int) -> Flag:
    """Return whether a result is no number of a type with so many bits, of which ``low`` is the lowest."""
    return lambda whole, *_: not low <= whole < low + (1 << bits)


def s16(value: int) -> int:
    """Return the lower half of a word as a signed number."""
    return (value & 0xFFFF ^ 0x8000) - 0x8000


def _field(value: int, control: int, last: int) -> tuple[int, int]:
    """Return the bits that a control word names, and their number."""
    width = control >> 16 & 0x7F
    return value >> (control & last) & (1 << width) - 1, width


def _signed_field(value: int, control: int, last: int) -> int:
    field, width = _field(value, control, last)
    return field - (1 << width) if width and field >> width - 1 else field


LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "AND": operator.and_, "OR": operator.or_, "XOR": operator.xor, "ANDN2": lambda a, b: a & ~b,
    "ORN2": lambda a, b: a | ~b, "NAND": lambda a, b: ~(a & b), "NOR": lambda a, b: ~(a | b),
    "XNOR": lambda a, b: ~(a ^ b),
}  # fmt: skip
_CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "EQ": operator.eq, "LG": operator.ne, "GT": operator.gt, "GE": operator.ge, "LT": operator.lt, "LE": operator.le,
}  # fmt: skip


def _of_bits(bits: int) -> dict[str, ScalarOperation]:
    """Return what one word and two of them have alike."""
    u, i, last, is_set = f"u{bits}", f"i{bits}", bits - 1, _is_set(bits)
    return {
        **{f"S_{name}_B{bits}": _row(f"{u} {u} {u}", compute, is_set) for name, compute in LOGIC.items()},
        f"S_MOV_B{bits}": _row(f"{u} {u}", operator.pos),
        f"S_CMOV_B{bits}": _row(f"{u} {u} {u} scc", lambda a, old, scc: a if scc else old),
        f"S_CSELECT_B{bits}": _row(f"{u} {u} {u} scc", lambda a, b, scc: a if scc else b),
        f"S_NOT_B{bits}": _row(f"{u} {u}", operator.invert, is_set),
        f"S_BREV_B{bits}": _row(f"{u} {u}", lambda a: int(f"{a:0{bits}b}"[::-1], 2)),
        f"S_BCNT1_I32_B{bits}": _row(f"u32 {u}", int.bit_count, _is_set(32)),
        f"S_FF1_I32_B{bits}": _row(f"u32 {u}", lambda a: (a & -a).bit_length() - 1),
        f"S_FLBIT_I32_B{bits}": _row(f"u32 {u}", lambda a: bits - a.bit_length() if a else -1),
        f"S_BITSET0_B{bits}": _row(f"{u} u32 {u}", lambda a, old: old & ~(1 << (a & last))),
        f"S_BITSET1_B{bits}": _row(f"{u} u32 {u}", lambda a, old: old | 1 << (a & last)),
        f"S_BITCMP0_B{bits}": _row(f"scc {u} u32", lambda a, b: not a >> (b & last) & 1),
        f"S_BITCMP1_B{bits}": _row(f"scc {u} u32", lambda a, b: a >> (b & last) & 1),
        f"S_LSHL_B{bits}": _row(f"{u} {u} u32", lambda a, n: a << (n & last), is_set),
        f"S_LSHR_B{bits}": _row(f"{u} {u} u32", lambda a, n: a >> (n & last), is_set),
        f"S_ASHR_I{bits}": _row(f"{i} {i} u32", lambda a, n: a >> (n & last), is_set),
        f"S_BFE_U{bits}": _row(f"{u} {u} u32", lambda a, control: _field(a, control, last)[0], is_set),
        f"S_BFE_I{bits}": _row(f"{i} {i} u32", lambda a, control: _signed_field(a, control, last), is_set),
        f"S_BFM_B{bits}": _row(f"{u} u32 u32", lambda a, b: ((1 << (a & last)) - 1) << (b & last)),
        **{f"S_CMP_{name}_U{bits}": _row(f"scc {u} {u}", test) for name, test in _CONDITIONS.items()},
    }


def _of_words(kind: str, low: int) -> dict[str, ScalarOperation]:
    """Return what whole numbers with and without a sign have alike; ``low`` is the lowest one."""
    name, types, is_beyond = kind.upper(), f"{kind} {kind} {kind}", _is_beyond(low, 32)
    return {
        f"S_ADD_{name}": _row(types, operator.add, is_beyond),
        f"S_SUB_{name}": _row(types, operator.sub, is_beyond),
        f"S_MUL_HI_{name}": _row(types, lambda a, b: a * b >> 32),
        f"S_MIN_{name}": _row(types, min, lambda _, a, b: a < b),
        f"S_MAX_{name}": _row(types, max, lambda _, a, b: a >= b),
        **{
            f"S_{form}_{condition}_{name}": _row(f"scc {kind} {kind}", test)
            for form in ("CMP", "CMPK")
            for condition, test in _CONDITIONS.items()
        },
    }


SCALAR_OPERATIONS: dict[str, ScalarOperation] = {
    **_of_bits(32),
    **_of_bits(64),
    **_of_words("u32", 0),
    **_of_words("i32", -(1 << 31)),
    "S_ABS_I32": _row("u32 i32", abs, _is_set(32)),
    "S_SEXT_I32_I8": _row("i32 u32", lambda a: (a & 0xFF ^ 0x80) - 0x80),
    "S_SEXT_I32_I16": _row("i32 u32", s16),
    "S_ADDC_U32": _row("u32 u32 u32 scc", lambda a, b, c: a + b + c, _is_beyond(0, 32)),
    "S_SUBB_U32": _row("u32 u32 u32 scc", lambda a, b, c: a - b - c, _is_beyond(0, 32)),
    "S_MUL_I32": _row("i32 i32 i32", operator.mul),
    **{
        f"S_LSHL{n}_ADD_U32": _row("u32 u32 u32", lambda a, b, n=n: (a << n) + b, _is_beyond(0, 32))
        for n in (1, 2, 3, 4)
    },
    "S_PACK_LL_B32_B16": _row("u32 u32 u32", lambda a, b: (a & 0xFFFF) | b << 16),
    "S_PACK_LH_B32_B16": _row("u32 u32 u32", lambda a, b: (a & 0xFFFF) | (b >> 16) << 16),
    "S_PACK_HH_B32_B16": _row("u32 u32 u32", lambda a, b: a >> 16 | (b >> 16) << 16),
    "S_MOVK_I32": _row("i32 i32 i32", lambda _, constant: constant),
    "S_ADDK_I32": _row("i32 i32 i32", operator.add, _is_beyond(-(1 << 31), 32)),
    "S_MULK_I32": _row("i32 i32 i32", operator.mul),
}
