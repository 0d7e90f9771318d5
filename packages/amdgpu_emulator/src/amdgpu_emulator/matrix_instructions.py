"""MFMA: a wave's product of matrices, D = A B + C.

How the matrices lie in registers is the same rule for every shape: A has its rows over the first lanes, and what lanes
are left go along k or, where the instruction multiplies several blocks, over the blocks. Products and sums are taken in
double precision and rounded once, those of whole numbers exactly; hardware rounds in an order that is not documented.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.floats import small_floats
from amdgpu_emulator.memory import Array
from amdgpu_emulator.operands import ACC, VGPR, Read, constant, joined, operand_reader, split
from amdgpu_emulator.vector_operations import of_bf16
from amdgpu_emulator.wave import LANES, Step, Waves

_MFMA_NAME = re.compile(
    r"V_MFMA_(F32|I32|F64)_(\d+)X(\d+)X(\d+)_?(?:(\d+)B_)?"
    r"(BF16|F16|F32|F64|I8|(?:FP8|BF8)(?:_FNUZ)?)(?:_((?:FP8|BF8)(?:_FNUZ)?))?(?:_1K)?"
)
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16}
"""Of an element of A and B; eight of the others."""
_TYPES = {"F64": np.float64, "F32": np.float32, "I32": np.int32}
"""Of C and D."""


@dataclass(frozen=True)
class MfmaShape:
    """One MFMA instruction: rows, columns, k, blocks and the types of A, B, and C."""

    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    c: str

    @property
    def lane_k(self) -> int:
        """Elements of A, and of B, that a lane holds."""
        return self.m * self.k * self.blocks // LANES

    @property
    def source_rows(self) -> int:
        """Registers of A, and of B."""
        return self.lane_k * _BITS.get(self.a, 8) // 32

    @property
    def results(self) -> int:
        """Elements of C, and of D, that a lane holds."""
        return self.m * self.n * self.blocks // LANES

    @property
    def result_rows(self) -> int:
        """Registers of C, and of D."""
        return self.results * _BITS.get(self.c, 32) // 32


def mfma_shape(name: str) -> MfmaShape | None:
    """Return the shape of an opcode; ``None`` if it is none of these."""
    match = _MFMA_NAME.fullmatch(name)
    if not match:
        return None
    m, n, k, blocks = (int(match[i] or 1) for i in range(2, 6))
    shape, groups = MfmaShape(m, n, k, blocks, match[6], match[7] or match[6], match[1]), LANES // m
    # Lanes beyond the rows go along k alone or over blocks alone.
    is_regular = m == n and blocks in (1, groups) and shape.lane_k * groups == k * blocks
    return shape if is_regular and (shape.c != "F64" or blocks == 1) else None


def translate_mfma(inst: Instruction) -> Step:
    """Translate ``v_mfma_...``."""
    shape = mfma_shape(inst.name)
    if shape is None:
        raise UnsupportedInstruction(inst.opcode)
    if inst.cbsz or inst.abid or inst.blgp:
        raise UnsupportedInstruction(f"{inst.opcode} with a broadcast or a negation")
    of_c = ACC if inst.acc_cd else 0
    a = inst.src0 - VGPR + (ACC if inst.acc & 1 else 0)
    b = inst.src1 - VGPR + (ACC if inst.acc & 2 else 0)
    d = inst.vdst - VGPR + of_c
    code = inst.src2
    if code >= VGPR:
        first = code - VGPR + of_c
        rows = slice(first, first + shape.result_rows)
        addend: Read = lambda w: _elements(w.v[rows], shape.c)  # noqa: E731
    elif constant(code, "u32") is None:
        raise UnsupportedInstruction(f"{inst.opcode} with C in a scalar register")
    else:
        addend = operand_reader(code, shape.c.lower())
    left, right = _operand(shape, shape.a, a), _operand(shape, shape.b, b)
    places, results, target = _result_places(shape), shape.results, slice(d, d + shape.result_rows)
    kind, type_ = shape.c, _TYPES[shape.c]

    def step(w: Waves) -> None:
        product = (left(w) @ right(w).transpose(0, 1, 3, 2)).reshape(w.count, -1)
        values = product[:, places].transpose(1, 0, 2).reshape(results, -1)
        if kind == "F32":
            w.vf[target] = (values + addend(w)).astype(type_)
        elif kind == "F64":
            w.v[target][::2], w.v[target][1::2] = split(values + addend(w))
        else:
            # Sums of whole numbers are exact, and are cut to their type.
            w.vi[target] = values.astype(np.int64).astype(type_) + addend(w)

    return step


def _elements(words: Array, kind: str) -> Array:
    """Return registers [rows, lanes] as elements of C."""
    if kind != "F64":
        return words.view(_TYPES[kind])
    return joined(words[::2], words[1::2]).view(np.float64)


def _operand(shape: MfmaShape, kind: str, first: int) -> Read:
    """Return the function that gives A as [waves, blocks, rows, k], or B as [waves, blocks, columns, k]."""
    values_of: Callable[[Array], Array] = {
        "F64": lambda words: _elements(words, kind), "F32": lambda words: words.view(np.float32),
        "F16": lambda words: words.view(np.float16), "BF16": of_bf16, "I8": lambda words: words.view(np.int8),
    }.get(kind, lambda words: small_floats(kind)[words.view(np.uint8)])  # fmt: skip
    source, rows = slice(first, first + shape.source_rows), shape.source_rows // (2 if kind == "F64" else 1)
    groups, order = LANES // shape.m, (1, 2, 3, 0, 4) if shape.blocks > 1 else (1, 3, 2, 0, 4)
    sizes = shape.blocks, shape.m, shape.k

    def read(w: Waves) -> Array:
        # Lane = group * rows + row, and a word has one, two or four elements.
        values = values_of(w.v[source]).astype(np.float64)
        return values.reshape(rows, w.count, groups, shape.m, -1).transpose(order).reshape(w.count, *sizes)

    return read


@cache
def _result_places(shape: MfmaShape) -> Array:
    """Return which element of the blocks of D each element of each lane is."""
    register, lane = np.indices((shape.results, LANES))
    if shape.m == 4:
        block, row, column = lane // 4, register, lane % 4
    elif shape.c == "F64":
        block, row, column = 0 * lane, register * (LANES // shape.m) + lane // shape.m, lane % shape.m
    else:
        per_block = shape.results // shape.blocks
        r = register % per_block
        # Four rows of a lane lie together; the lanes beyond the columns follow, then the next four registers.
        row = r % 4 + 4 * (lane // shape.m) + (r // 4) * 4 * (LANES // shape.m)
        block, column = register // per_block, lane % shape.m
    return (block * shape.m + row) * shape.n + column
