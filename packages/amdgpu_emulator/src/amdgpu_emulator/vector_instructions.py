"""Vector instructions: operands and results of the operations in ``vector_operations``, in each encoding."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.floats import fma
from amdgpu_emulator.lane_instructions import in_rows, of_other_lanes
from amdgpu_emulator.memory import Array
from amdgpu_emulator.operands import (
    ACC,
    LITERAL,
    OPERAND_TYPES,
    VGPR,
    WORD,
    Read,
    Write,
    constant,
    half_of,
    operand_reader,
    part_reader,
    part_writer,
    result_writer,
    sdwa_part,
    two_results,
    with_sign,
)
from amdgpu_emulator.vector_operations import VECTOR_OPERATIONS, VectorOperation
from amdgpu_emulator.wave import EXEC, VCC, Step, Waves

_FLOAT_TYPES = ("f16", "f32", "f64")
_TYPES_OF_16_BITS = ("u16", "i16", "f16")
_SATURATE = ("V_ADD_", "V_SUB_", "V_SUBREV_", "V_MAD_")
"""Sums of whole numbers that can be held within their type."""
_KEEP_HALF = ("V_MAD_MIX", "V_CVT_PK_FP8_", "V_CVT_PK_BF8_")
"""Results of 16 bits that leave the other half of the register as it is."""
PACKED = {
    **dict.fromkeys(("V_PK_FMA_F32", "V_PK_MUL_F32", "V_PK_ADD_F32", "V_PK_MOV_B32"), 64),
    **{f"V_PK_{name}_F16": 32 for name in ("ADD", "MUL", "FMA", "MAX", "MIN")},
    **{f"V_PK_{name}_{kind}16": 32 for name in ("ADD", "SUB", "MAD", "MAX", "MIN") for kind in "IU"},
    **dict.fromkeys(("V_PK_MUL_LO_U16", "V_PK_LSHLREV_B16", "V_PK_LSHRREV_B16", "V_PK_ASHRREV_I16"), 32),
}
"""Instructions that do the same twice, and the bits of an operand."""


def translate_vector(inst: Instruction) -> Step:
    """Translate ``v_...``, but for matrix products and instructions across lanes."""
    name = inst.name
    if name.startswith("V_BITOP3_"):
        return _bitop3(inst, name.lower()[-3:].replace("b", "u"))
    if name.startswith("V_MAD_MIX"):
        return _mix(inst)
    if name in PACKED:
        return _packed(inst, VECTOR_OPERATIONS[name.replace("V_PK_", "V_")])
    # Whose lower half each operand's is, and its upper half: as assemblers write it where nothing is chosen.
    is_plain = inst.opsel_hi & 3 == 3 or name.startswith("V_ACCVGPR_")
    if inst.form == "VOP3P" and (not is_plain or inst.opsel or inst.neg or inst.neg_hi or inst.clmp):
        raise UnsupportedInstruction(f"{inst.opcode} with a modifier")
    operation = VECTOR_OPERATIONS.get(name.replace("V_CMPX_", "V_CMP_"))
    if operation is None:
        raise UnsupportedInstruction(inst.opcode)
    return _vector(inst, operation)


def _vector(inst: Instruction, operation: VectorOperation) -> Step:
    put: Callable[[Waves, Any], None] = _result(inst, operation)
    if operation.carries:
        put = two_results(put, result_writer(_mask_register(inst), "mask"))
    step = _step(operation.compute, _sources(inst, operation), put)
    return in_rows(inst, step) if inst.form.endswith("_DPP16") else step


def _step(compute: Callable[..., Any], sources: Sequence[Read], put: Write) -> Step:
    """Return the step that computes a result; the usual numbers of operands are the fastest."""
    if len(sources) == 1:
        (only,) = sources
        return lambda w: put(w, compute(only(w)))
    if len(sources) == 2:
        a, b = sources
        return lambda w: put(w, compute(a(w), b(w)))
    if len(sources) == 3:
        a, b, c = sources
        return lambda w: put(w, compute(a(w), b(w), c(w)))
    return lambda w: put(w, compute(*[source(w) for source in sources]))


def _mask_register(inst: Instruction) -> int:
    """Return the first of the two scalar registers to which a comparison or a carry goes."""
    if inst.form == "VOP3SD" or inst.sd:
        return int(inst.sdst)
    return int(inst.vdst) if inst.form in ("VOP3", "VOP3_SDST") else VCC


def _sources(inst: Instruction, operation: VectorOperation, top: bool = False) -> list[Read]:
    """Return the operands; ``top``: those of the upper half of a packed instruction."""
    sources = []
    for index, kind in enumerate(operation.operands):
        if kind == "old":
            sources.append(operand_reader(inst.vdst, operation.result))
        else:
            code = getattr(inst, f"src{index}", VCC if kind == "mask" else LITERAL)
            sources.append(_source(inst, index, code, kind, (inst.opsel_hi if top else inst.opsel) >> index & 1, top))
    if inst.form == "VOP3" and inst.clmp and operation.result not in (*_FLOAT_TYPES, "mask"):
        # What is held within its type has more bits before.
        return [_in_64_bits(source) for source in sources]
    return sources


def _in_64_bits(source: Read) -> Read:
    return lambda w: source(w).astype(np.int64)


def _source(inst: Instruction, index: int, code: int, kind: str, half: int, top: bool) -> Read:
    """Return an operand as its modifiers want it: a part of a register, its sign, and of other lanes."""
    if "_SDWA" in inst.form and index < 2:
        word = operand_reader(code - VGPR if getattr(inst, f"s{index}") else code, "u32")
        part, extends = sdwa_part(getattr(inst, f"src{index}_sel")), bool(getattr(inst, f"src{index}_sext"))
        source = part_reader(word, kind, part, extends)
    else:
        if PACKED.get(inst.name) == 64:
            code, half = code + (half if constant(code, "u32") is None else 0), 0
        if half and kind not in _TYPES_OF_16_BITS:
            raise UnsupportedInstruction(f"{inst.opcode} with half of an operand")
        is_accumulator = code >= VGPR and inst.name in ("V_ACCVGPR_READ", "V_ACCVGPR_MOV_B32")
        source = operand_reader(code + ACC * is_accumulator, kind, inst.literal, bool(half))
    negate, absolute = (bits >> index & 1 for bits in (inst.neg_hi if top else inst.neg, inst.abs))
    if (negate or absolute) and kind not in _FLOAT_TYPES:
        raise UnsupportedInstruction(f"{inst.opcode} with the sign of a whole number changed")
    source = with_sign(source, bool(negate), bool(absolute))
    return of_other_lanes(inst, source) if inst.form.endswith("_DPP16") and index == 0 else source


def _result(inst: Instruction, operation: VectorOperation, top: bool = False) -> Write:
    """Return what writes a result as its modifiers want it; ``top``: that of a packed instruction's upper half."""
    kind, name = operation.result, inst.name
    if kind == "mask":
        put, to_exec = (result_writer(register, kind) for register in (_mask_register(inst), EXEC))
        both = two_results(put, to_exec)
        return (lambda w, value: both(w, (value, value))) if name.startswith("V_CMPX_") else put
    high = top or name.startswith("V_MAD_MIXHI") or (inst.form == "VOP3" and bool(inst.opsel >> 3))
    if hasattr(inst, "dst_sel"):
        part, is_wide = sdwa_part(inst.dst_sel), kind.endswith("64")
        if inst.omod or inst.clmp or (part != WORD and (is_wide or inst.dst_unused == 1)):
            raise UnsupportedInstruction(f"{inst.opcode} in this form")
        keeps = inst.dst_unused == 2
        put = result_writer(inst.vdst, kind) if is_wide else part_writer(inst.vdst, kind, part, keeps)
    elif kind in _TYPES_OF_16_BITS and (high or name.startswith(_KEEP_HALF)):
        put = part_writer(inst.vdst, kind, half_of(high))
    else:
        is_accumulator = name in ("V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32")
        put = result_writer(inst.vdst + top + ACC * is_accumulator, kind)
    if not (inst.omod or inst.clmp):
        return put
    if kind not in _FLOAT_TYPES:
        if inst.omod or not name.startswith(_SATURATE) or operation.carries:
            raise UnsupportedInstruction(f"{inst.opcode} with clamp")
        type_: Any = OPERAND_TYPES[kind]
        limits = np.iinfo(type_)
        return lambda w, value: put(w, np.clip(value, limits.min, limits.max).astype(type_))
    factor, is_clamped = (1.0, 2.0, 4.0, 0.5)[inst.omod], bool(inst.clmp)

    def scaled(w: Waves, value: Array) -> None:
        result = value * value.dtype.type(factor)
        # The last sum makes a zero positive.
        put(w, np.fmin(np.fmax(result, 0), 1) + 0 if is_clamped else result)

    return scaled


def _packed(inst: Instruction, operation: VectorOperation) -> Step:
    """Translate what does the same with both halves of words, or with both words of pairs."""
    lower, upper = (_sources(inst, operation, top) for top in (False, True))
    put, compute = two_results(*[_result(inst, operation, top) for top in (False, True)]), operation.compute
    if inst.name == "V_PK_MOV_B32":
        # The upper result is the second operand's chosen half. Both are read before one is written.
        compute, upper = np.copy, [_source(inst, 1, inst.src1, "u32", inst.opsel >> 1 & 1, False)]
    return lambda w: put(w, [compute(*[read(w) for read in sources]) for sources in (lower, upper)])


def _mix(inst: Instruction) -> Step:
    """Translate ``v_fma_mix...`` of floats and halves: rounded to a float, then to a half if it is wanted."""
    result, plain = "f32" if inst.name.endswith("F32") else "f16", copy(inst)
    plain.abs, plain.opsel = inst.neg_hi, inst.opsel & inst.opsel_hi

    def compute(*operands: Array) -> Array:
        return fma(*[operand.astype(np.float32) for operand in operands]).astype(OPERAND_TYPES[result])

    kinds = tuple("f16" if inst.opsel_hi >> index & 1 else "f32" for index in range(3))
    return _vector(plain, VectorOperation(result, kinds, compute))


def _bitop3(inst: Instruction, kind: str) -> Step:
    """Translate ``v_bitop3``: any function of three bits, given by its table of eight."""
    table, plain = inst.omod << 6 | inst.abs << 3 | inst.neg, copy(inst)
    plain.omod = plain.abs = plain.neg = 0

    def compute(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
        for index in range(8):
            if table >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return result

    return _vector(plain, VectorOperation(kind, (kind, kind, kind), compute))
