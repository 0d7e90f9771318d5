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
_INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494}
OPERAND_TYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
}  # fmt: skip
"""Types of operands, besides ``mask``: one bit a lane in a pair of scalar registers."""
_VIEWS = {"u32": "v", "i32": "vi", "f32": "vf"}
WORD = 0, 32
"""A part of a register, by its lowest bit and the number of its bits: all of it."""


def half_of(high: bool) -> tuple[int, int]:
    """Return the lower or the upper half of a register, as a part of it."""
    return 16 * high, 16


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
        fixed = constant(code, value, kind, high)
        return lambda w: fixed
    row, type_, bits = code - VGPR + (ACC if acc else 0), OPERAND_TYPES[kind], int(kind[1:])
    if bits == 16:
        return part_reader(operand_reader(code, "u32", literal, acc=acc), kind, half_of(high))
    if code >= VGPR and bits == 64:
        return lambda w: (w.v[row].astype(np.uint64) | w.v[row + 1].astype(np.uint64) << np.uint64(32)).view(type_)
    if code >= VGPR:
        registers = attrgetter(_VIEWS[kind])
        return lambda w: registers(w)[row]
    if bits == 32 and code in (SCC, VCCZ, EXECZ):
        return lambda w: w.spread(np.array(scalar_flags(w, code), np.uint32)).view(type_)
    if not (code < 108 or code in (124, 126, 127)) or (bits == 64 and code % 2):
        raise UnsupportedInstruction(f"the scalar operand {code} of {bits} bits")
    if bits == 64:
        return lambda w: w.spread(w.s64[code // 2 :: SGPR_PAIRS]).view(type_)
    return lambda w: w.spread(w.s[code::SGPRS]).view(type_)


def scalar_flags(w: Waves, code: int) -> list[int]:
    """Return a flag that can be read as an operand, of each wave."""
    if code == SCC:
        return w.scc
    return [int(mask == 0) for mask in w.s64[(VCC if code == VCCZ else EXEC) // 2 :: SGPR_PAIRS].tolist()]


def constant(code: int, value: int, kind: str, high: bool = False) -> Array:
    """Return a constant whose 32 bits are ``value`` as one of a type; floats have the size of the operand."""
    bits = int(kind[1:])
    if code in _INLINE_FLOATS:
        return np.array([_INLINE_FLOATS[code]], f"f{bits // 8}").view(OPERAND_TYPES[kind])
    if bits == 64 and kind == "f64" and code == LITERAL:
        value <<= 32
    elif bits == 64 and value >> 31 and (code != LITERAL or kind == "i64"):
        # Inline integers have a sign, and so has the literal of a signed operand.
        value |= 0xFFFFFFFF << 32
    elif bits == 16:
        value = (value >> 16 if high else value) & 0xFFFF
    return np.array([value], f"u{bits // 8}").view(OPERAND_TYPES[kind])


def with_sign(source: Read, negate: bool, absolute: bool) -> Read:
    """Return a float operand with its sign's modifiers."""
    if absolute and negate:
        return lambda w: -np.abs(source(w))
    if absolute:
        return lambda w: np.abs(source(w))
    return (lambda w: -source(w)) if negate else source


def sdwa_part(selection: int) -> tuple[int, int]:
    """Return the byte, half or whole of a word that SDWA names, as a part of a register."""
    if selection == 6:
        return WORD
    return (8 * selection, 8) if selection < 4 else half_of(selection == 5)


def part_reader(source: Read, kind: str, part: tuple[int, int], extend: bool = False) -> Read:
    """Return the function that gives a part of a word; ``extend``: with its sign."""
    (first, bits), type_ = part, OPERAND_TYPES[kind]
    narrow = np.uint32 if kind in _VIEWS else np.uint16
    left, right = np.uint32(32 - bits - first), np.uint32(32 - bits)
    # A cast to half of the bits cuts the rest off.
    is_cast = bits == 16 and narrow is np.uint16

    def read(w: Waves) -> Array:
        word = source(w)
        if is_cast:
            return (word >> np.uint32(first) if first else word).astype(np.uint16).view(type_)
        word = word << left
        word = (word.view(np.int32) >> right.view(np.int32)).view(np.uint32) if extend else word >> right
        return word.astype(narrow).view(type_)

    return read


def result_writer(code: int, kind: str, acc: bool = False) -> Write:
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
    # On these GPUs the upper half becomes zero.
    return part_writer(code, kind, half_of(False), keeps=False)


def part_writer(code: int, kind: str, part: tuple[int, int], keeps: bool = True) -> Write:
    """Return the function that writes a part of a register, and leaves what is around it, or makes it zero."""
    row, word, (first, bits) = code - VGPR, _write_word(code - VGPR, "v"), part
    mask, narrow = np.uint32(((1 << bits) - 1) << first), f"u{int(kind[1:]) // 8}"

    def put(w: Waves, value: Array) -> None:
        placed = value.view(narrow).astype(np.uint32) << np.uint32(first) & mask
        word(w, w.v[row] & ~mask | placed if keeps else placed)

    return put


def _write_word(row: int, view: str) -> Write:
    registers = attrgetter(view)

    def put(w: Waves, value: Array) -> None:
        target = registers(w)[row]
        if w.whole:
            target[:] = value
        else:
            np.copyto(target, value, where=w.m)

    return put
