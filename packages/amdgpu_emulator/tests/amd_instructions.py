"""AMD's instructions as machine code, by the encodings of tinygrad; a wave, and random operands for it."""

import re
import zlib

import numpy as np
from tinygrad.renderer.amd.dsl import EnumBitField, FixedBitField
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import decoder, instructions
from amdgpu_emulator.memory import Allocation, GlobalMemory
from amdgpu_emulator.wave import LANES, Waves

EXTREMES = np.array(
    [0, 1, 2, 4, 31, 32, 33, 63, 64, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x7FFFFFFF,
     0x80000000, 0x80000001, 0xFFFFFFFF, 0x3F800000, 0xBFC00000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001,
     0x807FFFFF, 0x7F7FFFFF, 0x3FC03C00, 0x3F808000, 0x3F818000, 0x33800000, 0x387FE000, 0x477FF000, 0x4F800000,
     0x3C003C01, 0x7C00FC00, 0x04000001, 0x7E00C000, 0x40490FDB, 0x3F000000, 0x3FC00000, 0xC0200000],
    np.uint32,
)  # fmt: skip
"""Ends of ranges, shifts beyond the width, signed zeros, denormals, infinities, NaN, ties of bf16 and fp16."""


def encode(encoding, op, **fields):
    """An instruction's bytes; fields are the numbers that its encoding holds."""
    raw = 0
    for name, field in getattr(ins, encoding)._fields:
        if isinstance(field, FixedBitField):
            value = field.default
        elif isinstance(field, EnumBitField):
            value = op.value
        else:
            value = fields.pop(name, 0)
        raw |= (value & field.mask) << field.lo
    assert not fields, fields
    return raw.to_bytes(getattr(ins, encoding)._base_size, "little")


def wave(lds=1024, scratch=16, eager=True):
    return Waves(
        [0], GlobalMemory(), Allocation(np.zeros(lds, np.uint8), "LDS"),
        Allocation(np.zeros(scratch * LANES, np.uint8), "scratch"), eager,
    )  # fmt: skip


def translated(form, op, **fields):
    inst = decoder.decode(encode(form, op, **fields) + bytes(16), 0, "gfx950")
    assert inst.opcode == op.name
    return instructions.translate(inst)


def meaning(op):
    """The name of an opcode without the suffix of its encoding."""
    return re.sub(r"_(E32|E64|SDWA|DPP16?)$", "", op.name)


def execute(w, form, op, **fields):
    """Execute an instruction; what is no access to memory is the same for waves in lock step as for each alone."""
    step = translated(form, op, **fields)
    with np.errstate(all="ignore"):
        if form not in ("DS", "FLAT", "GLOBAL", "MUBUF", "SCRATCH", "SMEM"):
            _compare_lock_step(w, step)
        step(w)


def _compare_lock_step(w, step):
    together = Waves([0, 1, 2], w.memory, w.lds, w.scratch, True)
    for wave_ in range(3):
        together.v[:, LANES * wave_ : LANES * (wave_ + 1)] = np.roll(w.v, wave_, axis=1)
        together.s_by_wave[wave_] = w.s + np.uint32(wave_ // 2)
    together.s64[1::64] = w.s64[1]
    together.scc = [w.scc[0], w.scc[0], 1]
    together.refresh_exec()
    alone = apart(together)
    step(together)
    for one, other in zip(alone, apart(together), strict=True):
        step(one)
        assert (one.v == other.v).all() and (one.s == other.s).all() and one.scc == other.scc
        assert (one.m == other.m).all()


def apart(w):
    """Waves as copies, each by itself."""
    w.targets = [*range(w.count)]
    return w.parts()


def draw(name, shape):
    """Random words, half of them extremes, the same for a name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    words = rng.integers(0, 1 << 32, shape, np.uint32)
    return np.where(rng.random(shape) < 0.5, rng.choice(EXTREMES, shape), words)
