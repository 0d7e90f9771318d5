"""Vector instructions: operands and results of the operations in ``vector_operations``, in each encoding."""

import re
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
    SDWA_WORD,
    VGPR,
    Read,
    Write,
    constant_bits,
    half_writer,
    operand_reader,
    result_writer,
    sdwa_reader,
    sdwa_writer,
    with_sign,
)
from amdgpu_emulator.vector_operations import VECTOR_OPERATIONS, VectorOperation
from amdgpu_emulator.wave import SGPR_PAIRS, VCC, Step, Waves

_FLOAT_TYPES = ("f16", "f32", "f64")
_TYPES_OF_16_BITS = ("u16", "i16", "f16")
_SATURATE = ("V_ADD_", "V_SUB_", "V_SUBREV_", "V_MAD_")
"""Sums of whole numbers that can be held within their type."""


def translate_vector(inst: Instruction, encoding: str, name: str, is_ocp: bool = True) -> Step:
    """Translate ``v_...``, but for matrix products and instructions across lanes; ``is_ocp``: as ``small_floats``."""
    if encoding == "VOP3P" and name in PACKED:
        return _packed(inst, name)
    if name.startswith("V_MAD_MIX"):
        return _mix(inst, name)
    # Whose lower half each operand's is, and its upper half: as assemblers write it where nothing is chosen.
    plain = (0, 0 if name.startswith("V_ACCVGPR_") else 3, 0, 0, 0)
    if encoding == "VOP3P" and (inst.opsel, inst.opsel_hi & 3, inst.neg, inst.neg_hi, inst.clmp) != plain:
        raise UnsupportedInstruction(f"{inst.op.name} with a modifier")
    if name.startswith("V_BITOP3_"):
        return _bitop3(inst, name.lower()[-3:].replace("b", "u"))
    if small := _SMALL_FLOATS.fullmatch(name):
        return _small_floats(inst, encoding, name, small, is_ocp)
    if name in _WITH_LITERAL:
        return _three_with_literal(inst, *_WITH_LITERAL[name])
    if name.startswith("V_CMPX_"):
        return _compare_to_mask(inst, encoding, name.replace("V_CMPX_", "V_CMP_"))
    if name in VECTOR_OPERATIONS:
        return _vector(inst, encoding, name, VECTOR_OPERATIONS[name])
    raise UnsupportedInstruction(inst.op.name)


def _vector(inst: Instruction, encoding: str, name: str, operation: VectorOperation) -> Step:
    sources = _sources(inst, encoding, name, operation)
    put = _result(inst, encoding, name, operation)
    compute = operation.compute
    if encoding == "VOP3" and inst.clmp and operation.result not in (*_FLOAT_TYPES, "mask"):
        sources = [_in_64_bits(source) for source in sources]
    if encoding.endswith("_DPP16"):
        lanes = LanesOf(inst)
        sources[0] = lanes.reader(sources[0])
    if operation.carries:
        carry = result_writer(int(inst.sdst.offset) if encoding == "VOP3SD" else VCC, "mask")

        def step_with_carry(w: Waves) -> None:
            result, flags = compute(*[source(w) for source in sources])
            put(w, result)
            carry(w, flags)

        step: Step = step_with_carry
    elif len(sources) == 2:
        a, b = sources
        step = lambda w: put(w, compute(a(w), b(w)))  # noqa: E731
    elif len(sources) == 3:
        a, b, c = sources
        step = lambda w: put(w, compute(a(w), b(w), c(w)))  # noqa: E731
    else:
        step = lambda w: put(w, compute(*[source(w) for source in sources]))  # noqa: E731
    return lanes.step(step) if encoding.endswith("_DPP16") else step


def _in_64_bits(source: Read) -> Read:
    return lambda w: source(w).astype(np.int64)


def _compare_to_mask(inst: Instruction, encoding: str, name: str) -> Step:
    """Translate a comparison whose result also becomes the mask of enabled lanes."""
    if name not in VECTOR_OPERATIONS or "_SDWA" in encoding:
        raise UnsupportedInstruction(inst.op.name)
    compare = _vector(inst, encoding, name, VECTOR_OPERATIONS[name])
    result = int(inst.vdst.offset) if hasattr(inst, "vdst") else VCC

    def step(w: Waves) -> None:
        compare(w)
        w.set_exec(w.s64[result // 2 :: SGPR_PAIRS])

    return step


def _sources(inst: Instruction, encoding: str, name: str, operation: VectorOperation) -> list[Read]:
    kinds = [kind for kind in operation.operands if kind != "old"]
    codes = [inst.src0.offset]
    if encoding.endswith(("_SDWA", "_SDWA_SDST", "_DPP16")):
        codes = [inst.vsrc0.offset]
    for field in ("src1", "vsrc1"):
        if hasattr(inst, field) and len(codes) < len(kinds):
            codes.append(getattr(inst, field).offset)
    codes += [*([inst.src2.offset] if hasattr(inst, "src2") else []), VCC][: len(kinds) - len(codes)]
    pairs = enumerate(zip(codes, kinds, strict=True))
    sources = [_source(inst, encoding, name, index, code, kind) for index, (code, kind) in pairs]
    if "old" in operation.operands:
        sources.append(operand_reader(inst.vdst.offset, operation.result))
    return sources


def _source(inst: Instruction, encoding: str, name: str, index: int, code: int, kind: str) -> Read:
    literal = getattr(inst, "literal", None)
    accumulator = name in ("V_ACCVGPR_READ", "V_ACCVGPR_MOV_B32")
    if "_SDWA" in encoding and index < 2:
        scalar = bool(getattr(inst, f"s{index}"))
        base = operand_reader(code - VGPR if scalar else code, "u32")
        source = sdwa_reader(base, kind, getattr(inst, f"src{index}_sel"), bool(getattr(inst, f"src{index}_sext")))
    else:
        chosen = encoding in ("VOP3", "VOP3_SDST") and bool(inst.opsel >> index & 1)
        high = chosen and kind in _TYPES_OF_16_BITS
        if chosen and not high:
            raise UnsupportedInstruction(f"{inst.op.name} with half of an operand")
        source = operand_reader(code, kind, literal, high, accumulator)
    if encoding.startswith(("VOP3", "VOP3SD")) and encoding not in ("VOP3P", "VOP3P_MFMA"):
        negate = bool(inst.neg >> index & 1)
        absolute = bool(getattr(inst, "abs", 0) >> index & 1)
    elif hasattr(inst, "src0_neg") and index < 2:
        negate, absolute = bool(getattr(inst, f"src{index}_neg")), bool(getattr(inst, f"src{index}_abs"))
    else:
        negate = absolute = False
    if not (negate or absolute):
        return source
    if name == "V_CNDMASK_B32":
        sign = np.uint32(1 << 31)
        return lambda w: (source(w) & ~sign if absolute else source(w)) ^ (sign if negate else np.uint32(0))
    if kind not in _FLOAT_TYPES:
        raise UnsupportedInstruction(f"{inst.op.name} with the sign of a whole number changed")
    return with_sign(source, negate, absolute)


def _result(inst: Instruction, encoding: str, name: str, operation: VectorOperation) -> Write:
    if operation.result == "mask":
        if encoding in ("VOP3_SDST", "VOP3"):
            return result_writer(inst.vdst.offset, "mask")
        return result_writer(inst.sdst.offset if getattr(inst, "sd", 0) else VCC, "mask")
    if "_SDWA" in encoding and hasattr(inst, "dst_sel"):
        is_wide = operation.result.endswith("64")
        if (is_wide and inst.dst_sel != SDWA_WORD) or inst.omod or inst.clmp:
            raise UnsupportedInstruction(f"{inst.op.name} in this form")
        if is_wide:
            return result_writer(inst.vdst.offset, operation.result)
        put_part = sdwa_writer(inst.vdst.offset - VGPR, inst.dst_sel, inst.dst_unused)
        halves = operation.result in _TYPES_OF_16_BITS
        return lambda w, value: put_part(w, _word(value, halves))
    acc = name in ("V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32")
    high = encoding == "VOP3" and operation.result in _TYPES_OF_16_BITS and bool(inst.opsel >> 3 & 1)
    put = result_writer(inst.vdst.offset, operation.result, high, acc)
    omod, clamp = (getattr(inst, "omod", 0), getattr(inst, "clmp", 0)) if encoding in ("VOP3", "VOP3SD") else (0, 0)
    if not (omod or clamp):
        return put
    if operation.result not in _FLOAT_TYPES:
        # What is held within its type has more bits before.
        if omod or not name.startswith(_SATURATE) or operation.carries:
            raise UnsupportedInstruction(f"{inst.op.name} with clamp")
        type_: Any = OPERAND_TYPES[operation.result]
        limits = np.iinfo(type_)
        return lambda w, value: put(w, np.clip(value, limits.min, limits.max).astype(type_))
    factor = (1.0, 2.0, 4.0, 0.5)[omod]

    def scaled(w: Waves, value: Array) -> None:
        result = value * value.dtype.type(factor)
        put(w, _between_0_and_1(result) if clamp else result)

    return scaled


def _between_0_and_1(value: Array) -> Array:
    return np.fmin(np.fmax(value, 0), 1).astype(value.dtype)


def _word(value: Array, half: bool) -> Array:
    return value.view(np.uint16).astype(np.uint32) if half else value.view(np.uint32)


PACKED = {
    **dict.fromkeys(("V_PK_FMA_F32", "V_PK_MUL_F32", "V_PK_ADD_F32", "V_PK_MOV_B32"), 64),
    **{f"V_PK_{name}_F16": 32 for name in ("ADD", "MUL", "FMA", "MAX", "MIN")},
    **{f"V_PK_{name}_{kind}16": 32 for name in ("ADD", "SUB", "MAD", "MAX", "MIN") for kind in "IU"},
    **dict.fromkeys(("V_PK_MUL_LO_U16", "V_PK_LSHLREV_B16", "V_PK_LSHRREV_B16", "V_PK_ASHRREV_I16"), 32),
}
"""Instructions that do the same twice, and the bits of an operand."""


def _packed(inst: Instruction, name: str) -> Step:
    wide = PACKED[name] == 64
    operation = VECTOR_OPERATIONS[name if wide else name.replace("V_PK_", "V_")]
    kind = operation.operands[0]
    if (inst.neg or inst.neg_hi or inst.clmp) and kind not in _FLOAT_TYPES:
        raise UnsupportedInstruction(f"{inst.op.name} with a modifier of floats")
    opsel_hi = inst.opsel_hi | inst.opsel_hi2 << 2
    codes = [inst.src0.offset, inst.src1.offset, inst.src2.offset][: len(operation.operands)]

    def sources(top: bool) -> list[Read]:
        reads = []
        for index, code in enumerate(codes):
            chosen = bool((opsel_hi if top else inst.opsel) >> index & 1)
            negate = bool((inst.neg_hi if top else inst.neg) >> index & 1)
            if wide:
                constant = constant_bits(code, None) is not None
                source = operand_reader(code + (1 if chosen and not constant else 0), kind)
            else:
                source = operand_reader(code, operation.operands[index], None, chosen)
            reads.append(with_sign(source, negate, False))
        return reads

    low, top = sources(False), sources(True)
    if name == "V_PK_MOV_B32":
        # The lower result is the first operand's chosen half, the upper one the second's.
        low, top = [low[0], low[0]], [operand_reader(codes[1] + (inst.opsel >> 1 & 1), kind)] * 2
    compute, target = operation.compute, inst.vdst.offset
    upper = result_writer(target + 1, operation.result) if wide else result_writer(target, operation.result, high=True)
    puts = (result_writer(target, operation.result), upper)
    is_clamped = bool(inst.clmp)

    def step(w: Waves) -> None:
        results = [compute(*[source(w) for source in half]) for half in (low, top)]
        if is_clamped:
            results = [_between_0_and_1(result) for result in results]
        for put, result in zip(puts, results, strict=True):
            put(w, result)

    return step


def _mix(inst: Instruction, name: str) -> Step:
    """Translate ``v_fma_mix...`` of floats and halves: rounded to a float, then to a half if it is wanted."""
    sources = []
    for index, code in enumerate((inst.src0.offset, inst.src1.offset, inst.src2.offset)):
        is_half, high = (inst.opsel_hi | inst.opsel_hi2 << 2) >> index & 1, bool(inst.opsel >> index & 1)
        read = operand_reader(code, "f16" if is_half else "f32", None, high)
        sources.append(with_sign(read, bool(inst.neg >> index & 1), bool(inst.neg_hi >> index & 1)))
    is_half = not name.endswith("F32")
    # The other half of the register stays.
    row, high = inst.vdst.offset, name.startswith("V_MAD_MIXHI")
    put = half_writer(row, high) if is_half else result_writer(row, "f32")
    is_clamped = bool(inst.clmp)

    def step(w: Waves) -> None:
        result = fma(*[source(w).astype(np.float32) for source in sources])
        result = _between_0_and_1(result) if is_clamped else result
        put(w, result.astype(np.float16) if is_half else result)

    return step


_SMALL_FLOATS = re.compile(r"V_CVT_(PK_)?(?:F32_(FP8|BF8)|(FP8|BF8)_F32)")


def _small_floats(inst: Instruction, encoding: str, name: str, form: re.Match[str], is_ocp: bool) -> Step:
    """Translate conversions between floats and numbers of eight bits."""
    pair, of, to = form.groups()
    if of:
        table = small_floats(of, is_ocp)

        def widened(a: Array) -> Array:
            low = table[a & np.uint32(255)]
            if not pair:
                return low
            high = table[a >> np.uint32(8) & np.uint32(255)]
            return low.view(np.uint32) | high.view(np.uint32).astype(np.uint64) << np.uint64(32)

        return _vector(inst, encoding, name, VectorOperation("u64" if pair else "f32", ("u32",), widened))
    if not pair or not to or inst.omod or inst.clmp:
        raise UnsupportedInstruction(inst.op.name)
    sources = [
        with_sign(operand_reader(code.offset, "f32"), bool(inst.neg >> index & 1), bool(inst.abs >> index & 1))
        for index, code in enumerate((inst.src0, inst.src1))
    ]
    put = half_writer(inst.vdst.offset, bool(inst.opsel >> 3))

    def step(w: Waves) -> None:
        low, high = (to_small(source(w), to, is_ocp) for source in sources)
        put(w, (low | high << np.uint32(8)).astype(np.uint16))

    return step


def _bitop3(inst: Instruction, kind: str) -> Step:
    """Translate ``v_bitop3``: any function of three bits, given by its table of eight."""
    table = inst.omod << 6 | inst.abs << 3 | inst.neg
    sources = [operand_reader(code.offset, kind) for code in (inst.src0, inst.src1, inst.src2)]
    put = result_writer(inst.vdst.offset, kind)
    if inst.opsel or inst.clmp:
        raise UnsupportedInstruction(f"{inst.op.name} in this form")

    def step(w: Waves) -> None:
        a, b, c = (source(w) for source in sources)
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
        for index in range(8):
            if table >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        put(w, result)

    return step


_WITH_LITERAL = {
    "V_FMAMK_F32": ("V_FMA_F32", True), "V_FMAAK_F32": ("V_FMA_F32", False),
    "V_MADMK_F32": ("V_MAD_F32", True), "V_MADAK_F32": ("V_MAD_F32", False),
}  # fmt: skip
"""Which product and sum, and whether the literal is a factor; else it is added."""


def _three_with_literal(inst: Instruction, operation: str, multiplies: bool) -> Step:
    a, b = (operand_reader(field.offset, "f32", inst.literal) for field in (inst.src0, inst.vsrc1))
    literal = operand_reader(LITERAL, "f32", inst.literal)
    factors = (a, literal, b) if multiplies else (a, b, literal)
    compute, put = VECTOR_OPERATIONS[operation].compute, result_writer(inst.vdst.offset, "f32")
    return lambda w: put(w, compute(*[factor(w) for factor in factors]))
