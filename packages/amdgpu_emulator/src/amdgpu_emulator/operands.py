"""Operands of vector instructions: functions that read one for all lanes, and functions that write a result."""

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import PRIVATE_BASE, SHARED_BASE, Array
from amdgpu_emulator.wave import EXEC, SGPR_PAIRS, SGPRS, VCC, Waves

Read = Callable[[Waves], Array]
Write = Callable[[Waves, Array], None]

VGPR, ACC = 256, 256
"""First code of a vector register; what an accumulation register's code is more than that."""
LITERAL, SCC, VCCZ, EXECZ = 255, 253, 251, 252
_INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494}
_APERTURES = {235: SHARED_BASE, 236: SHARED_BASE + 0xFFFFFFFF, 237: PRIVATE_BASE, 238: PRIVATE_BASE + 0xFFFFFFFF}
"""Operands that are the first and the last address of the LDS, and of the memory of a lane."""
OPERAND_TYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
}  # fmt: skip
"""Types of operands, besides ``mask``: one bit a lane in a pair of scalar registers."""
_VIEWS = {"u32": "v", "i32": "vi", "f32": "vf"}
_SCALAR_VIEWS = {"u32": "s", "i32": "si", "f32": "sf", "u64": "s64", "i64": "si64", "f64": "sf64"}
WORD = 0, 32
"""A part of a register, by its lowest bit and the number of its bits: all of it."""


def joined(low: Array, high: Array) -> Array:
    """Return numbers of 64 bits of two words each."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def split(values: Array) -> tuple[Array, Array]:
    """Return the lower and the upper words of numbers of 64 bits."""
    bits = values.view(np.uint64)
    return bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)


def half_of(high: bool) -> tuple[int, int]:
    """Return the lower or the upper half of a register, as a part of it."""
    return 16 * high, 16


def constant(code: int, kind: str, literal: int | None = None, high: bool = False) -> Array | None:
    """Return an operand that is a constant, in an array of one; ``None`` if it is none.

    Floats have the size of the operand. Inline integers have a sign, and so has the literal of a signed operand.
    """
    bits = int(kind[1:])
    if code in _INLINE_FLOATS:
        return np.array([_INLINE_FLOATS[code]], f"f{bits // 8}").view(OPERAND_TYPES[kind])
    if 128 <= code <= 208:
        value = code - 128 if code <= 192 else 192 - code
    elif code in _APERTURES and bits == 64:
        value = _APERTURES[code]
    elif code == LITERAL and literal is not None:
        value = literal << 32 if kind == "f64" else literal - ((literal & 1 << 31) << 1 if kind == "i64" else 0)
    else:
        return None
    return np.array([(value >> 16 * high) & (1 << bits) - 1], f"u{bits // 8}").view(OPERAND_TYPES[kind])


def operand_reader(code: int, kind: str, literal: int | None = None, high: bool = False) -> Read:
    """Return the function that gives an operand: one value a lane, or one for all lanes of all waves."""
    if kind == "mask":
        return lambda w: w.mask(code)
    fixed = constant(code, kind, literal, high)
    if fixed is not None:
        return lambda w: fixed
    row, type_, bits = code - VGPR, OPERAND_TYPES[kind], int(kind[1:])
    if bits == 16:
        return part_reader(operand_reader(code, "u32", literal), kind, half_of(high))
    if code >= VGPR and bits == 64:
        return lambda w: joined(w.v[row], w.v[row + 1]).view(type_)
    if code >= VGPR and kind == "u32":
        return lambda w: w.v[row]
    if code >= VGPR:
        return (lambda w: w.vi[row]) if kind == "i32" else (lambda w: w.vf[row])
    by_wave = scalar_reader(code, kind)
    return lambda w: w.spread(by_wave(w))


def scalar_reader(code: int, kind: str) -> Read:
    """Return the function that gives an operand in scalar registers: one value a wave."""
    bits = int(kind[1:])
    if code == SCC:
        return lambda w: np.array(w.scc, f"u{bits // 8}").view(OPERAND_TYPES[kind])
    if code in (VCCZ, EXECZ):
        pair = (VCC if code == VCCZ else EXEC) // 2
        return lambda w: (w.s64[pair::SGPR_PAIRS] == 0).astype(f"u{bits // 8}").view(OPERAND_TYPES[kind])
    if not (code < 108 or code in (124, 126, 127)) or (bits == 64 and code % 2):
        raise UnsupportedInstruction(f"the scalar operand {code} of {bits} bits")
    registers, places = attrgetter(_SCALAR_VIEWS[kind]), slice(32 * code // bits, None, 32 * SGPRS // bits)
    return lambda w: registers(w)[places]


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
    if kind.endswith("64"):
        raise UnsupportedInstruction("a part of a word as an operand of 64 bits")
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


def result_writer(code: int, kind: str) -> Write:
    """Return the function that writes a result to the enabled lanes."""
    if kind == "mask":
        return lambda w, value: w.set_mask(code, value & w.m)
    row = code - VGPR
    if code < VGPR:
        raise UnsupportedInstruction(f"a vector result in the scalar register {code}")
    if kind in _VIEWS:
        return _write_word(row, _VIEWS[kind])
    if kind in ("u64", "i64", "f64"):
        both = two_results(_write_word(row, "v"), _write_word(row + 1, "v"))
        return lambda w, value: both(w, split(value))
    # On these GPUs the upper half becomes zero.
    return part_writer(code, kind, half_of(False), keeps=False)


def two_results(first: Write, second: Write) -> Callable[[Waves, Sequence[Array]], None]:
    """Return the function that writes two results, each to a place of its own."""

    def put(w: Waves, values: Sequence[Array]) -> None:
        first(w, values[0])
        second(w, values[1])

    return put


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
        if w.whole:
            registers(w)[row] = value
        else:
            np.copyto(registers(w)[row], value, where=w.m)

    return put
