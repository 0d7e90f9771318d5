"""MFMA: a wave's product of matrices, D = A B + C.

How the matrices lie in registers is the same rule for every shape: A has its rows over the first lanes, and what lanes
are left go along k or, where the instruction multiplies several blocks, over the blocks. Products and sums are taken in
double precision and rounded once; hardware rounds in an order that is not documented.
"""

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import Array
from amdgpu_emulator.operands import ACC, VGPR, constant_bits
from amdgpu_emulator.wave import LANES, Step, Waves

_MFMA_NAME = re.compile(r"V_MFMA_F32_(\d+)X(\d+)X(\d+)_?(?:(\d+)B_)?(BF16|F16|F32)(?:_1K)?")


@dataclass(frozen=True)
class MfmaShape:
    """One MFMA instruction: rows, columns, k, blocks and the type of A and B."""

    m: int
    n: int
    k: int
    blocks: int
    kind: str

    @property
    def lane_k(self) -> int:
        """Elements of A, and of B, that a lane holds."""
        return self.m * self.k * self.blocks // LANES

    @property
    def source_rows(self) -> int:
        """Registers of A, and of B."""
        return self.lane_k if self.kind == "F32" else self.lane_k // 2

    @property
    def result_rows(self) -> int:
        """Registers of C, and of D."""
        return self.m * self.n * self.blocks // LANES

    @property
    def supported(self) -> bool:
        """Whether lanes beyond the rows go along k alone or over blocks alone."""
        groups = LANES // self.m
        return self.m == self.n and self.blocks in (1, groups) and self.lane_k * groups == self.k * self.blocks


def mfma_shape(name: str) -> MfmaShape | None:
    """Return the shape of an opcode; ``None`` if it is none of these."""
    match = _MFMA_NAME.fullmatch(name)
    if not match:
        return None
    m, n, k, blocks = (int(match[i] or 1) for i in range(1, 5))
    shape = MfmaShape(m, n, k, blocks, match[5])
    return shape if shape.supported else None


def translate_mfma(inst: Instruction, name: str) -> Step:
    """Translate ``v_mfma_f32_...``."""
    shape = mfma_shape(name)
    if shape is None:
        raise UnsupportedInstruction(inst.op.name)
    if inst.cbsz or inst.abid or inst.blgp:
        raise UnsupportedInstruction(f"{inst.op.name} with a broadcast or a negation")
    of_c = ACC if inst.acc_cd else 0
    a = inst.src0.offset - VGPR + (ACC if inst.acc & 1 else 0)
    b = inst.src1.offset - VGPR + (ACC if inst.acc & 2 else 0)
    d = inst.vdst.offset - VGPR + of_c
    code = inst.src2.offset
    c: Array | int
    if code >= VGPR:
        c = code - VGPR + of_c
    else:
        bits = constant_bits(code, None)
        if bits is None:
            raise UnsupportedInstruction(f"{inst.op.name} with C in a scalar register")
        c = np.array([bits], np.uint32).view(np.float32)
    return lambda w: multiply(w, shape, d, a, b, c)


def multiply(w: Waves, shape: MfmaShape, d: int, a: int, b: int, c: Array | int) -> None:
    """Execute one instruction; ``c`` is a row of registers, or the constant that fills C."""
    left, right = _operand(w, shape, a), _operand(w, shape, b)
    product = (left @ right.transpose(0, 1, 3, 2)).reshape(w.count, -1)
    values = product[:, _result_places(shape)].transpose(1, 0, 2).reshape(shape.result_rows, -1)
    before = w.vf[c : c + shape.result_rows] if isinstance(c, int) else c
    w.vf[d : d + shape.result_rows] = (values + before).astype(np.float32)


def _operand(w: Waves, shape: MfmaShape, first: int) -> Array:
    """Return A as [waves, blocks, rows, k], or B as [waves, blocks, columns, k]."""
    words = w.v[first : first + shape.source_rows]
    if shape.kind == "F32":
        values = words.view(np.float32)
    elif shape.kind == "F16":
        values = words.view(np.float16)
    else:
        values = (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    # Lane = group * rows + row, and a word has one or two elements.
    by_lane = values.astype(np.float64).reshape(shape.source_rows, w.count, LANES // shape.m, shape.m, -1)
    if shape.blocks > 1:
        return by_lane.transpose(1, 2, 3, 0, 4).reshape(w.count, shape.blocks, shape.m, shape.k)
    return by_lane.transpose(1, 3, 2, 0, 4).reshape(w.count, 1, shape.m, shape.k)


@cache
def _result_places(shape: MfmaShape) -> Array:
    """Return which element of the blocks of D each register and lane has."""
    register, lane = np.indices((shape.result_rows, LANES))
    if shape.m == 4:
        block, row, column = lane // 4, register, lane % 4
    else:
        per_block = shape.result_rows // shape.blocks
        r = register % per_block
        # Four rows of a lane lie together; the lanes beyond the columns follow, then the next four registers.
        row = r % 4 + 4 * (lane // shape.m) + (r // 4) * 4 * (LANES // shape.m)
        block, column = register // per_block, lane % shape.m
    return (block * shape.m + row) * shape.n + column
