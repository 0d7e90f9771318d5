"""The encodings of AMD's instructions, decoded by tinygrad: the one module that knows it."""

import re
from functools import lru_cache
from typing import Any

from amdgpu_emulator.faults import UnsupportedInstruction

Instruction = Any
"""A decoded instruction: ``op.name``, ``size()``, and the fields of its encoding by their names in AMD's manuals."""
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


def decode(code: bytes, at: int, arch: str) -> Instruction:
    """Return the instruction at an offset; ``UnsupportedInstruction`` if there is none."""
    try:
        return _decode(code[at : at + _LONGEST], arch)
    except Exception as error:
        # What tinygrad raises is whatever it stumbles over: a number of no opcode or register, missing bytes.
        raise UnsupportedInstruction(f"no instruction at {at:#x}: {code[at : at + 8].hex()} ({error})") from error


@lru_cache(1 << 16)
def _decode(content: bytes, arch: str) -> Instruction:
    """Return the instruction that some bytes begin with; instances of a kernel share much of their code."""
    # Half a second to import: a code object can be read without it.
    from tinygrad.renderer.amd import decode_inst

    if arch == "gfx90a" and content[3:4] == _VOP3P and content[2] & 0x7F in _OLD_BF16:
        content = content[:2] + bytes([content[2] - _MOVED]) + content[3:]
    if arch == "gfx90a" and content[2:4] in _OLD_INVALIDATE:
        content = _INVALIDATE + content[4:]
    if arch == "gfx90a" and content[2:4] == _OLD_MAD:
        content = content[:2] + _UNUSED_THREE + content[4:]
    return decode_inst(content, "cdna")


def opcode(name: str, arch: str) -> str:
    """Name of an opcode as it is meant on an arch, without the suffix of its encoding."""
    name = _ENCODING.sub("", name)
    return _OLD_NAMES.get(name, name) if arch == "gfx90a" else name
