"""Operands of vector instructions: functions that read one for all lanes, and functions that write a result."""

import struct
from collections.abc import Callable
from operator import attrgetter

import numpy as np

from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import Array
from amdgpu_emulator.wave import EXEC, SGPR_PAIRS, SGPRS, VCC, Waves

Read = Callable[[Waves], Array]
Write = Callable[[Waves, Array], None]

VGPR, ACC = 256, 256
"""First code of a vector register; what an accumulation register's row adds to its number."""
LITERAL, SCC, VCCZ, EXECZ = 255, 253, 251, 252
SDWA_WORD = 6
"""Selects all of a word."""
_INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494}
OPERAND_TYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
}  # fmt: skip
"""Types of operands, besides ``mask``: one bit a lane in a pair of scalar registers."""
_VIEWS = {"u32": "v", "i32": "vi", "f32": "vf"}


def constant_bits(code: int, literal: int | None) -> int | None:
    """Return the 32 bits of an operand that is a constant; ``None`` if it is none."""
    if 128 <= code <= 192:
        return code - 128
    if 193 <= code <= 208:
        return (192 - code) & 0xFFFFFFFF
    if code in _INLINE_FLOATS:
        return int(struct.unpack("<I", struct.pack("<f", _INLINE_FLOATS[code]))[0])
    if code == LITERAL:
        assert literal is not None
        return literal
    return None


def operand_reader(code: int, kind: str, literal: int | None = None, high: bool = False, acc: bool = False) -> Read:
    """Return the function that gives an operand: one value a lane, or one for all lanes of all waves."""
    if kind == "mask":
        return lambda w: w.mask(code)
    value = constant_bits(code, literal)
    if value is not None:
        fixed = _constant(code, value, kind, high)
        return lambda w: fixed
    if kind in ("u64", "i64", "f64"):
        return _wide(code, kind, acc)
    if kind in ("u16", "i16", "f16"):
        whole, half = operand_reader(code, "u32", literal, acc=acc), OPERAND_TYPES[kind]
        if high:
            return lambda w: (whole(w) >> 16).astype(np.uint16).view(half)
        return lambda w: whole(w).astype(np.uint16).view(half)
    type_ = OPERAND_TYPES[kind]
    if code >= VGPR:
        row = code - VGPR + (ACC if acc else 0)
        if kind == "u32":
            return lambda w: w.v[row]
        return (lambda w: w.vi[row]) if kind == "i32" else (lambda w: w.vf[row])
    if code in (SCC, VCCZ, EXECZ):
        return lambda w: w.spread(np.array(scalar_flags(w, code), np.uint32)).view(type_)
    _require_register(code)
    return lambda w: w.spread(w.s[code::SGPRS]).view(type_)


def scalar_flags(w: Waves, code: int) -> list[int]:
    """Return a flag that can be read as an operand, of each wave."""
    if code == SCC:
        return w.scc
    return [int(mask == 0) for mask in w.s64[(VCC if code == VCCZ else EXEC) // 2 :: SGPR_PAIRS].tolist()]


def _require_register(code: int) -> None:
    if not (code < 108 or code in (124, 126, 127)):
        raise UnsupportedInstruction(f"the operand {code}")


def _constant(code: int, value: int, kind: str, high: bool) -> Array:
    is_float = code in _INLINE_FLOATS
    if kind in ("u16", "i16", "f16"):
        if is_float:
            bits = np.array([_INLINE_FLOATS[code]], np.float16).view(np.uint16)
        else:
            bits = np.array([value >> 16 if high else value & 0xFFFF], np.uint32).astype(np.uint16)
        return bits.view(OPERAND_TYPES[kind])
    if kind in ("u64", "i64", "f64"):
        if is_float:
            return np.array([_INLINE_FLOATS[code]], np.float64).view(OPERAND_TYPES[kind])
        if kind == "f64" and code == LITERAL:
            return np.array([value << 32], np.uint64).view(np.float64)
        # Inline integers have a sign, and so has the literal of a signed operand.
        signed = code != LITERAL or kind == "i64"
        wide = value - (1 << 32) if signed and value >> 31 else value
        return np.array([wide & (1 << 64) - 1], np.uint64).view(OPERAND_TYPES[kind])
    return np.array([value], np.uint32).view(OPERAND_TYPES[kind])


def _wide(code: int, kind: str, acc: bool) -> Read:
    type_ = OPERAND_TYPES[kind]
    if code >= VGPR:
        row = code - VGPR + (ACC if acc else 0)
        return lambda w: (w.v[row].astype(np.uint64) | w.v[row + 1].astype(np.uint64) << np.uint64(32)).view(type_)
    _require_register(code)
    if code % 2:
        raise UnsupportedInstruction(f"a pair of scalar registers from {code} on")
    return lambda w: w.spread(w.s64[code // 2 :: SGPR_PAIRS]).view(type_)


def with_sign(source: Read, negate: bool, absolute: bool) -> Read:
    """Return a float operand with its sign's modifiers."""
    if absolute and negate:
        return lambda w: -np.abs(source(w))
    if absolute:
        return lambda w: np.abs(source(w))
    return (lambda w: -source(w)) if negate else source


def _sdwa_field(selection: int) -> tuple[int, int]:
    """Return the lowest bit and number of bits of a byte, a half or the whole of a word."""
    if selection == SDWA_WORD:
        return 0, 32
    return (8 * selection, 8) if selection < 4 else (16 * (selection - 4), 16)


def sdwa_reader(source: Read, kind: str, selection: int, extend: bool) -> Read:
    """Return the function that gives an operand of a SDWA instruction: a byte, a half or the whole of a word."""
    shift, bits = _sdwa_field(selection)

    def select(w: Waves) -> Array:
        value = source(w) >> np.uint32(shift) & np.uint32((1 << bits) - 1)
        if extend:
            value = (value.view(np.int32) << (32 - bits) >> (32 - bits)).view(np.uint32)
        return value.view(OPERAND_TYPES[kind]) if kind in _VIEWS else value.astype(np.uint16).view(OPERAND_TYPES[kind])

    return select


def result_writer(code: int, kind: str, high: bool = False, acc: bool = False) -> Write:
    """Return the function that writes a result to the enabled lanes."""
    if kind == "mask":
        return lambda w, value: w.set_mask(code, value & w.m)
    row = code - VGPR + (ACC if acc else 0)
    if code < VGPR:
        raise UnsupportedInstruction(f"a vector result in the scalar register {code}")
    if kind in _VIEWS:
        return _write_word(row, _VIEWS[kind])
    if kind in ("u64", "i64", "f64"):
        low, top = _write_word(row, "v"), _write_word(row + 1, "v")

        def write_wide(w: Waves, value: Array) -> None:
            bits = value.view(np.uint64)
            low(w, bits.astype(np.uint32))
            top(w, (bits >> np.uint64(32)).astype(np.uint32))

        return write_wide
    if high:
        return half_writer(code, True)
    word = _write_word(row, "v")
    # On these GPUs the upper half becomes zero.
    return lambda w, value: word(w, value.view(np.uint16).astype(np.uint32))


def half_writer(code: int, high: bool) -> Write:
    """Return the function that writes half of a register, and leaves the other half."""
    row, word = code - VGPR, _write_word(code - VGPR, "v")
    if high:
        return lambda w, value: word(w, w.v[row] & 0xFFFF | value.view(np.uint16).astype(np.uint32) << 16)
    return lambda w, value: word(w, w.v[row] & 0xFFFF0000 | value.view(np.uint16))


def _write_word(row: int, view: str) -> Write:
    registers = attrgetter(view)

    def put(w: Waves, value: Array) -> None:
        target = registers(w)[row]
        if w.whole:
            target[:] = value
        else:
            np.copyto(target, value, where=w.m)

    return put


def sdwa_writer(row: int, selection: int, unused: int) -> Write:
    """Return the function that writes a SDWA result to a part of a word; ``unused`` says what the rest becomes."""
    if unused == 1 and selection != SDWA_WORD:
        raise UnsupportedInstruction("a SDWA result whose sign fills the rest")
    shift, bits = _sdwa_field(selection)
    mask = np.uint32(((1 << bits) - 1) << shift)
    word = _write_word(row, "v")

    def put(w: Waves, value: Array) -> None:
        placed = value << np.uint32(shift) & mask
        word(w, w.v[row] & ~mask | placed if unused == 2 else placed)

    return put
