"""The encodings of AMD's instructions, decoded by tinygrad: the one module that knows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from amdgpu_emulator.faults import UnsupportedInstruction

_LONGEST = 16
"""Bytes of the longest instruction."""
_ENCODING = re.compile(r"_(E32|E64|SDWA|DPP16?)$")
_VOP3P, _OLD_BF16, _MOVED = b"\xd3", range(0x63, 0x68), 6
"""The products of bf16 have other numbers on gfx90a (there ..._bf16_1k), in the same order."""
_OLD_INVALIDATE, _INVALIDATE = (b"\xf8\xe0", b"\xfc\xe0"), b"\x00\x80\xa4\xe0"
"""``buffer_wbinvl1`` and ``..._vol`` of gfx90a, and the instruction that does the same later: ``buffer_inv sc1``."""
_OLD_NAMES = {
    "V_DOT2C_F32_BF16": "V_MAC_F32", "V_FMAMK_F32": "V_MADMK_F32", "V_FMAAK_F32": "V_MADAK_F32",
    "V_MINIMUM3_F32": "V_MAD_F32", "V_MFMA_F32_16X16X32_F16": "V_MFMA_I32_32X32X8_I8",
    "V_MFMA_F32_32X32X16_F16": "V_MFMA_I32_16X16X16_I8",
}  # fmt: skip
"""What opcodes of later GPUs mean on gfx90a: a product and a sum, each rounded, or a matrix product."""
_OLD_MAD, _UNUSED_THREE = b"\xc1\xd1", b"\xa8\xd2"
"""``v_mad_f32`` of gfx90a, and an opcode of three floats that it lacks, ``v_minimum3_f32``."""
_SMALL_FLOAT = re.compile("FP8|BF8")
"""Floats of eight bits: before gfx950 they are other numbers."""
_ONE_NAME = {
    "vsrc0": ("src0", 0), "vsrc1": ("src1", 0), "src0_neg": ("neg", 0), "src1_neg": ("neg", 1), "src0_abs": ("abs", 0),
    "src1_abs": ("abs", 1), "opsel_hi2": ("opsel_hi", 2),
}  # fmt: skip
"""What an encoding calls otherwise than that of three operands (VOP3), and from which bit on it lies there."""
_SIGNED = ("GLOBAL.offset", "SCRATCH.offset", "SMEM.offset", "SOPK.simm16", "SOPP.simm16")
"""Fields that are numbers with a sign."""


class Instruction:
    """A decoded instruction: its fields by their names in AMD's manuals, those of registers as operands' codes.

    Operands and their modifiers have the names of VOP3 in every encoding. A modifier that it lacks is 0.
    """

    neg = neg_hi = abs = opsel = opsel_hi = omod = clmp = sd = 0
    literal: Any = None

    def __init__(self, decoded: Any, arch: str) -> None:
        encoding: Any = type(decoded)
        self.form, self.opcode, self.size = encoding.__name__, decoded.op.name, decoded.size()
        """Encoding, opcode as tinygrad calls it, and bytes."""
        name = _ENCODING.sub("", self.opcode)
        self.name = _OLD_NAMES.get(name, name) if arch == "gfx90a" else name
        """The opcode as it is meant on the arch, without the suffix of its encoding."""
        if arch != "gfx950":
            self.name = _SMALL_FLOAT.sub(r"\g<0>_FNUZ", self.name)
        raw = decoded._raw
        for field, shift, at, mask, sign, unit, first in _layout(encoding):
            value = ((raw >> at & mask ^ sign) - sign) * unit + first
            setattr(self, field, value << shift | getattr(self, field) if shift else value)

    if TYPE_CHECKING:

        def __getattr__(self, field: str) -> Any: ...


@cache
def _layout(encoding: Any) -> list[tuple[str, int, int, int, int, int, int]]:
    """Return the fields of an encoding: where their bits go and lie, their sign, a register's code by its number."""
    found = []
    for name, place in encoding._fields:
        if name not in ("op", "encoding"):
            sign = (place.mask + 1) // 2 if f"{encoding.__name__}.{name}" in _SIGNED else 0
            unit, first = getattr(place, "_align", 1), getattr(place, "_valid_range", (0,))[0]
            found.append((*_ONE_NAME.get(name, (name, 0)), place.lo, place.mask, sign, unit, first))
    return found


def decode(code: bytes, at: int, arch: str) -> Instruction:
    """Return the instruction at an offset; ``UnsupportedInstruction`` if there is none."""
    try:
        return _decode(code[at : at + _LONGEST], arch)
    except Exception as error:
        # What tinygrad raises is whatever it stumbles over: a number of no opcode or register, missing bytes.
        raise UnsupportedInstruction(f"no instruction at {at:#x}: {code[at : at + 8].hex()} ({error})") from error


def listing(code: bytes, begin: int, end: int, arch: str) -> Iterator[tuple[int, Instruction | str]]:
    """Yield the address of each instruction in a piece of code; four bytes that are none come with the reason."""
    while begin < end:
        inst: Instruction | str
        try:
            inst = decode(code, begin, arch)
        except UnsupportedInstruction as fault:
            inst = str(fault)
        yield begin, inst
        begin += inst.size if isinstance(inst, Instruction) else 4


@lru_cache(1 << 16)
def _decode(content: bytes, arch: str) -> Instruction:
    """Return the instruction that some bytes begin with; instances of a kernel share much of their code."""
    return Instruction(encoded(content, arch), arch)


def encoded(content: bytes, arch: str) -> Any:
    """Return the instruction that some bytes begin with as tinygrad has it."""
    # Half a second to import: a code object can be read without it.
    from tinygrad.renderer.amd import decode_inst

    if arch == "gfx90a" and content[3:4] == _VOP3P and content[2] & 0x7F in _OLD_BF16:
        content = content[:2] + bytes([content[2] - _MOVED]) + content[3:]
    if arch == "gfx90a" and content[2:4] in _OLD_INVALIDATE:
        content = _INVALIDATE + content[4:]
    if arch == "gfx90a" and content[2:4] == _OLD_MAD:
        content = content[:2] + _UNUSED_THREE + content[4:]
    return decode_inst(content, "cdna")
