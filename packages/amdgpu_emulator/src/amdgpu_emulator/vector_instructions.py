"""Vector instructions: operands and results of the operations in ``vector_operations``, in each encoding."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.floats import fma, small_floats, to_small
from amdgpu_emulator.lane_instructions import LanesOf
from amdgpu_emulator.memory import Array
from amdgpu_emulator.operands import (
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
    with_sign,
)
from amdgpu_emulator.vector_operations import VECTOR_OPERATIONS, VectorOperation
from amdgpu_emulator.wave import SGPR_PAIRS, VCC, Step, Waves

_FLOAT_TYPES = ("f16", "f32", "f64")
_TYPES_OF_16_BITS = ("u16", "i16", "f16")
_SATURATE = ("V_ADD_", "V_SUB_", "V_SUBREV_", "V_MAD_")
"""Sums of whole numbers that can be held within their type."""
_SMALL_FLOATS = re.compile(r"V_CVT_(PK_)?(?:F32_(FP8|BF8)|(FP8|BF8)_F32)")
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
    if inst.form == "VOP3P" and name in PACKED:
        return _packed(inst)
    if name.startswith("V_MAD_MIX"):
        return _mix(inst)
    if inst.form == "VOP3P":
        # Whose lower half each operand's is, and its upper half: as assemblers write it where nothing is chosen.
        is_plain = inst.opsel_hi & 3 == 3 or name.startswith("V_ACCVGPR_")
        if not is_plain or inst.opsel or inst.neg or inst.neg_hi or inst.clmp:
            raise UnsupportedInstruction(f"{inst.opcode} with a modifier")
    if name.startswith("V_BITOP3_"):
        return _bitop3(inst, name.lower()[-3:].replace("b", "u"))
    if small := _SMALL_FLOATS.fullmatch(name):
        return _small_floats(inst, small)
    operation = VECTOR_OPERATIONS.get(name.replace("V_CMPX_", "V_CMP_"))
    if operation is None:
        raise UnsupportedInstruction(inst.opcode)
    return _compare_to_mask(inst, operation) if name.startswith("V_CMPX_") else _vector(inst, operation)


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


def _vector(inst: Instruction, operation: VectorOperation) -> Step:
    sources = _sources(inst, operation)
    put = _result(inst, operation)
    if inst.form == "VOP3" and inst.clmp and operation.result not in (*_FLOAT_TYPES, "mask"):
        sources = [_in_64_bits(source) for source in sources]
    if operation.carries:
        put_value, put_carry = put, result_writer(inst.sdst if inst.form == "VOP3SD" else VCC, "mask")

        def put(w: Waves, both: Any) -> None:
            put_value(w, both[0])
            put_carry(w, both[1])

    if inst.form.endswith("_DPP16"):
        lanes = LanesOf(inst)
        return lanes.step(_step(operation.compute, [lanes.reader(sources[0]), *sources[1:]], put))
    return _step(operation.compute, sources, put)


def _in_64_bits(source: Read) -> Read:
    return lambda w: source(w).astype(np.int64)


def _compare_to_mask(inst: Instruction, operation: VectorOperation) -> Step:
    """Translate a comparison whose result also becomes the mask of enabled lanes."""
    if "_SDWA" in inst.form:
        raise UnsupportedInstruction(inst.opcode)
    compare = _vector(inst, operation)
    result = inst.vdst if hasattr(inst, "vdst") else VCC

    def step(w: Waves) -> None:
        compare(w)
        w.set_exec(w.s64[result // 2 :: SGPR_PAIRS])

    return step


def _sources(inst: Instruction, operation: VectorOperation) -> list[Read]:
    kinds = [kind for kind in operation.operands if kind != "old"]
    fields = ["vsrc0" if hasattr(inst, "vsrc0") else "src0", "src1", "vsrc1", "src2"]
    codes = [getattr(inst, field) for field in fields if hasattr(inst, field)][: len(kinds)]
    if len(codes) < len(kinds):
        codes.append(VCC if kinds[-1] == "mask" else LITERAL)
    pairs = enumerate(zip(codes, kinds, strict=True))
    sources = [_source(inst, index, code, kind) for index, (code, kind) in pairs]
    if "old" in operation.operands:
        sources.append(operand_reader(inst.vdst, operation.result))
    return sources


def _source(inst: Instruction, index: int, code: int, kind: str) -> Read:
    if "_SDWA" in inst.form and index < 2:
        word = operand_reader(code - VGPR if getattr(inst, f"s{index}") else code, "u32")
        part, extends = sdwa_part(getattr(inst, f"src{index}_sel")), bool(getattr(inst, f"src{index}_sext"))
        source = part_reader(word, kind, part, extends)
    else:
        high = inst.form in ("VOP3", "VOP3_SDST") and bool(inst.opsel >> index & 1)
        if high and kind not in _TYPES_OF_16_BITS:
            raise UnsupportedInstruction(f"{inst.opcode} with half of an operand")
        is_accumulator = inst.name in ("V_ACCVGPR_READ", "V_ACCVGPR_MOV_B32")
        source = operand_reader(code, kind, getattr(inst, "literal", None), high, is_accumulator)
    negate = absolute = 0
    if inst.form.startswith("VOP3") and inst.form != "VOP3P":
        negate, absolute = inst.neg >> index & 1, getattr(inst, "abs", 0) >> index & 1
    elif index < 2 and hasattr(inst, "src0_neg"):
        negate, absolute = getattr(inst, f"src{index}_neg"), getattr(inst, f"src{index}_abs")
    if (negate or absolute) and kind not in _FLOAT_TYPES:
        raise UnsupportedInstruction(f"{inst.opcode} with the sign of a whole number changed")
    return with_sign(source, bool(negate), bool(absolute))


def _result(inst: Instruction, operation: VectorOperation) -> Write:
    kind, omod, clamp = operation.result, getattr(inst, "omod", 0), getattr(inst, "clmp", 0)
    if kind == "mask":
        if inst.form in ("VOP3_SDST", "VOP3"):
            return result_writer(inst.vdst, kind)
        return result_writer(inst.sdst if getattr(inst, "sd", 0) else VCC, kind)
    if hasattr(inst, "dst_sel"):
        part, is_wide = sdwa_part(inst.dst_sel), kind.endswith("64")
        if omod or clamp or (part != WORD and (is_wide or inst.dst_unused == 1)):
            raise UnsupportedInstruction(f"{inst.opcode} in this form")
        if is_wide:
            return result_writer(inst.vdst, kind)
        return part_writer(inst.vdst, kind, part, keeps=inst.dst_unused == 2)
    put = result_writer(inst.vdst, kind, inst.name in ("V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32"))
    if inst.form == "VOP3" and kind in _TYPES_OF_16_BITS and inst.opsel >> 3 & 1:
        put = part_writer(inst.vdst, kind, half_of(True))
    if not (omod or clamp):
        return put
    if kind not in _FLOAT_TYPES:
        # What is held within its type has more bits before.
        if omod or not inst.name.startswith(_SATURATE) or operation.carries:
            raise UnsupportedInstruction(f"{inst.opcode} with clamp")
        type_: Any = OPERAND_TYPES[kind]
        limits = np.iinfo(type_)
        return lambda w, value: put(w, np.clip(value, limits.min, limits.max).astype(type_))
    factor = (1.0, 2.0, 4.0, 0.5)[omod]

    def scaled(w: Waves, value: Array) -> None:
        result = value * value.dtype.type(factor)
        put(w, _between_0_and_1(result) if clamp else result)

    return scaled


def _between_0_and_1(value: Array) -> Array:
    return np.fmin(np.fmax(value, 0), 1).astype(value.dtype)


def _packed(inst: Instruction) -> Step:
    name, wide = inst.name, PACKED[inst.name] == 64
    operation = VECTOR_OPERATIONS[name.replace("V_PK_", "V_")]
    result, target = operation.result, inst.vdst
    # What is only moved is read before any of it is written.
    compute: Callable[..., Any] = np.copy if name == "V_PK_MOV_B32" else operation.compute
    if (inst.neg or inst.neg_hi or inst.clmp) and operation.operands[0] not in _FLOAT_TYPES:
        raise UnsupportedInstruction(f"{inst.opcode} with a modifier of floats")
    chosen = inst.opsel, inst.opsel_hi | inst.opsel_hi2 << 2
    codes = [inst.src0, inst.src1, inst.src2][: len(operation.operands)]

    def source(top: bool, index: int, code: int) -> Read:
        high, kind = bool(chosen[top] >> index & 1), operation.operands[index]
        if wide:
            code += high and constant(code, "u32") is None
        read = operand_reader(code, kind, None, high and not wide)
        return with_sign(read, bool((inst.neg_hi if top else inst.neg) >> index & 1), False)

    halves = [[source(top, index, code) for index, code in enumerate(codes)] for top in (False, True)]
    if name == "V_PK_MOV_B32":
        # The lower result is the first operand's chosen half, the upper one the second's.
        halves[1] = [operand_reader(inst.src1 + (inst.opsel >> 1 & 1), result)]
    upper = result_writer(target + 1, result) if wide else part_writer(target, result, half_of(True))
    puts, is_clamped = (result_writer(target, result), upper), bool(inst.clmp)

    def step(w: Waves) -> None:
        results = [compute(*[read(w) for read in half]) for half in halves]
        for put, value in zip(puts, results, strict=True):
            put(w, _between_0_and_1(value) if is_clamped else value)

    return step


def _mix(inst: Instruction) -> Step:
    """Translate ``v_fma_mix...`` of floats and halves: rounded to a float, then to a half if it is wanted."""
    sources = []
    for index, code in enumerate((inst.src0, inst.src1, inst.src2)):
        is_half, high = (inst.opsel_hi | inst.opsel_hi2 << 2) >> index & 1, bool(inst.opsel >> index & 1)
        read = operand_reader(code, "f16" if is_half else "f32", None, high)
        sources.append(with_sign(read, bool(inst.neg >> index & 1), bool(inst.neg_hi >> index & 1)))
    is_clamped, kind = bool(inst.clmp), "f32" if inst.name.endswith("F32") else "f16"
    put = result_writer(inst.vdst, kind)
    if kind == "f16":
        # The other half of the register stays.
        put = part_writer(inst.vdst, kind, half_of(inst.name.startswith("V_MAD_MIXHI")))

    def compute(*operands: Array) -> Array:
        result = fma(*[operand.astype(np.float32) for operand in operands])
        return (_between_0_and_1(result) if is_clamped else result).astype(OPERAND_TYPES[kind])

    return _step(compute, sources, put)


def _small_floats(inst: Instruction, form: re.Match[str]) -> Step:
    """Translate conversions between floats and numbers of eight bits."""
    pair, of, to = form.groups()
    if of:
        table = small_floats(of, inst.arch)

        def widened(a: Array) -> Array:
            low, high = (table[a >> np.uint32(shift) & np.uint32(255)] for shift in (0, 8))
            return low.view(np.uint32) | high.view(np.uint32).astype(np.uint64) << np.uint64(32) if pair else low

        return _vector(inst, VectorOperation("u64" if pair else "f32", ("u32",), widened))
    if not pair or inst.omod or inst.clmp:
        raise UnsupportedInstruction(inst.opcode)

    def narrowed(a: Array, b: Array) -> Array:
        return (to_small(a, to, inst.arch) | to_small(b, to, inst.arch) << np.uint32(8)).astype(np.uint16)

    sources = _sources(inst, VectorOperation("u16", ("f32", "f32"), narrowed))
    return _step(narrowed, sources, part_writer(inst.vdst, "u16", half_of(bool(inst.opsel >> 3))))


def _bitop3(inst: Instruction, kind: str) -> Step:
    """Translate ``v_bitop3``: any function of three bits, given by its table of eight."""
    table = inst.omod << 6 | inst.abs << 3 | inst.neg
    if inst.opsel or inst.clmp:
        raise UnsupportedInstruction(f"{inst.opcode} in this form")

    def compute(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
        for index in range(8):
            if table >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return result

    sources = [operand_reader(code, kind) for code in (inst.src0, inst.src1, inst.src2)]
    return _step(compute, sources, result_writer(inst.vdst, kind))
