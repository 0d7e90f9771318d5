"""One decoded instruction becomes a function of a wave; what the tables lack is ``NotExecutable``."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tileseer.devices.emulated import matrix, operands, scalar_table, transfers, vector_table
from tileseer.devices.emulated.faults import NotExecutable
from tileseer.devices.emulated.operands import ACC, LITERAL, VGPR, Read, Write
from tileseer.devices.emulated.scalar_table import ScalarOperation
from tileseer.devices.emulated.vector_table import Operation
from tileseer.devices.emulated.wave import EXEC, LANES, VCC, Array, Wave

Step = Callable[[Wave], None]
_SUFFIX = re.compile(r"_(E32|E64|SDWA|DPP16?)$")
_FLOATS = ("f16", "f32", "f64")
_HALVES = ("u16", "i16", "f16")
_FAMILIES = {
    "DS": transfers.lds, "MUBUF": transfers.buffer, "SMEM": transfers.scalar_load, "GLOBAL": transfers.global_,
    "FLAT": transfers.global_, "SCRATCH": transfers.scratch,
}  # fmt: skip
_NOTHING = frozenset(
    ("S_NOP", "S_SETPRIO", "S_SLEEP", "S_ICACHE_INV", "S_DCACHE_INV", "S_DCACHE_WB", "S_SETHALT", "S_INCPERFLEVEL",
     "S_DECPERFLEVEL", "S_TTRACEDATA", "BUFFER_WBL2", "BUFFER_INV", "BUFFER_WBINVL1", "BUFFER_WBINVL1_VOL",
     "BUFFER_INVL2", "V_NOP")
)  # fmt: skip
"""Instructions without an effect on results: memory here is always coherent."""


def plain_name(inst: Any) -> str:
    """Name of an opcode without the suffix of its encoding."""
    return _SUFFIX.sub("", inst.op.name)


def step_of(inst: Any, name: str) -> Step:
    """Function that executes an instruction which does not branch; ``name`` is that of the opcode on its arch."""
    form = type(inst).__name__
    if name in _NOTHING:
        return lambda w: None
    if form in _FAMILIES:
        return _FAMILIES[form](inst)
    if form.startswith("SOP"):
        return _scalar(inst, form, name)
    if form == "VOP3P_MFMA" and name.startswith("V_MFMA"):
        return _matrix(inst, name)
    if form == "VOP3P" and name in _PACKED:
        return _packed(inst, name)
    if name in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[name](inst)
    if name in _WITH_LITERAL:
        return _three_with_literal(inst, *_WITH_LITERAL[name])
    if name.startswith("V_CMPX_"):
        return _compare_to_mask(inst, form, name.replace("V_CMPX_", "V_CMP_"))
    if name in vector_table.OPERATIONS:
        return _vector(inst, form, name, vector_table.OPERATIONS[name])
    raise NotExecutable(inst.op.name)


# --- scalar instructions


def _scalar_read(code: int, bits: int, literal: int | None) -> Callable[[Wave], int]:
    value = operands.constant(code, literal)
    if value is not None:
        if bits == 64 and code != LITERAL and value >> 31 and code < 240:
            value |= 0xFFFFFFFF << 32
        return lambda w: value
    if code in (operands.SCC, operands.VCCZ, operands.EXECZ):
        return lambda w: operands.scalar_flag(w, code)
    if code >= 128:
        raise NotExecutable(f"the scalar operand {code}")
    if bits == 64:
        return lambda w: w.s64.item(code // 2)
    return lambda w: w.s.item(code)


def _scalar_write(code: int, bits: int) -> Callable[[Wave, int], None]:
    mask = (1 << bits) - 1

    def put(w: Wave, value: int) -> None:
        if bits == 64:
            w.s64[code // 2] = value & mask
        else:
            w.s[code] = value & mask
        if code in (EXEC, EXEC + 1):
            w.refresh_exec()

    return put


def _scalar(inst: Any, form: str, name: str) -> Step:
    literal = getattr(inst, "literal", None)
    if form.startswith("SOPK"):
        if name not in scalar_table.WITH_16_BITS:
            raise NotExecutable(inst.op.name)
        return _scalar_k(inst, name)
    if name.endswith(("_SAVEEXEC_B64", "_WREXEC_B64")):
        return _save_exec(inst, name, literal)
    if name not in scalar_table.OPERATIONS:
        raise NotExecutable(inst.op.name)
    operation = scalar_table.OPERATIONS[name]
    given = [inst.ssrc0.offset] + ([inst.ssrc1.offset] if form.startswith(("SOP2", "SOPC")) else [])
    if len(given) < len(operation.operands):
        # What the result's register held.
        given.append(inst.sdst.offset)
    reads = [_scalar_read(code, bits, literal) for code, bits in zip(given, operation.operands, strict=True)]
    put = _scalar_write(inst.sdst.offset, operation.bits) if operation.bits else None
    return _scalar_step(operation, reads, put)


def _scalar_step(
    operation: ScalarOperation, reads: list[Callable[[Wave], int]], put: Callable[[Wave, int], None] | None
) -> Step:
    compute, takes_scc = operation.compute, operation.takes_scc

    def step(w: Wave) -> None:
        values = [read(w) for read in reads]
        result, scc = compute(*values, w.scc) if takes_scc else compute(*values)
        if put is not None:
            put(w, result)
        if scc is not None:
            w.scc = scc

    return step


def _scalar_k(inst: Any, name: str) -> Step:
    compute, target, constant = scalar_table.WITH_16_BITS[name], inst.sdst.offset, inst.simm16
    put = None if "CMPK" in name else _scalar_write(target, 32)

    def step(w: Wave) -> None:
        result, scc = compute(w.s.item(target), constant)
        if put is not None:
            put(w, result)
        if scc is not None:
            w.scc = scc

    return step


def _save_exec(inst: Any, name: str, literal: int | None) -> Step:
    """Keep the mask, and combine it with an operand."""
    what = name.removeprefix("S_").removesuffix("_B64").removesuffix("_SAVEEXEC").removesuffix("_WREXEC")
    combine: dict[str, Callable[[int, int], int]] = {
        "AND": lambda a, b: a & b, "OR": lambda a, b: a | b, "XOR": lambda a, b: a ^ b, "ANDN1": lambda a, b: ~a & b,
        "ANDN2": lambda a, b: a & ~b, "ORN1": lambda a, b: ~a | b, "ORN2": lambda a, b: a | ~b,
    }  # fmt: skip
    if what not in combine:
        raise NotExecutable(inst.op.name)
    compute = combine[what]
    source, keep = _scalar_read(inst.ssrc0.offset, 64, literal), _scalar_write(inst.sdst.offset, 64)
    writes_new = name.endswith("_WREXEC_B64")

    def step(w: Wave) -> None:
        old = w.s64.item(EXEC // 2)
        new = compute(source(w), old) & scalar_table.M64
        keep(w, new if writes_new else old)
        w.set_exec(new)
        w.scc = int(new != 0)

    return step


# --- vector instructions


def _vector(inst: Any, form: str, name: str, operation: Operation) -> Step:
    sources = _sources(inst, form, name, operation)
    put = _result(inst, form, name, operation)
    compute = operation.compute
    if operation.carries:
        carry = operands.write(_carry_register(inst, form), "mask")

        def step_with_carry(w: Wave) -> None:
            result, flags = compute(*[source(w) for source in sources])
            put(w, result)
            carry(w, flags)

        step: Step = step_with_carry
    elif len(sources) == 1:
        (a,) = sources
        step = lambda w: put(w, compute(a(w)))  # noqa: E731
    elif len(sources) == 2:
        a, b = sources
        step = lambda w: put(w, compute(a(w), b(w)))  # noqa: E731
    elif len(sources) == 3:
        a, b, c = sources
        step = lambda w: put(w, compute(a(w), b(w), c(w)))  # noqa: E731
    else:
        step = lambda w: put(w, compute(*[source(w) for source in sources]))  # noqa: E731
    return _with_lanes_of(inst, step) if form.endswith("_DPP16") else step


def _compare_to_mask(inst: Any, form: str, name: str) -> Step:
    """A comparison whose result also becomes the mask of enabled lanes."""
    if name not in vector_table.OPERATIONS or "_SDWA" in form:
        raise NotExecutable(inst.op.name)
    compare = _vector(inst, form, name, vector_table.OPERATIONS[name])
    result = int(inst.vdst.offset) if hasattr(inst, "vdst") else VCC

    def step(w: Wave) -> None:
        compare(w)
        w.set_exec(w.s64.item(result // 2))

    return step


def _carry_register(inst: Any, form: str) -> int:
    return int(inst.sdst.offset) if form == "VOP3SD" else VCC


def _sources(inst: Any, form: str, name: str, operation: Operation) -> list[Read]:
    kinds = [kind for kind in operation.operands if kind != "old"]
    codes = [inst.src0.offset]
    if form.endswith(("_SDWA", "_SDWA_SDST", "_DPP16")):
        codes = [inst.vsrc0.offset]
    for field in ("src1", "vsrc1"):
        if hasattr(inst, field) and len(codes) < len(kinds):
            codes.append(getattr(inst, field).offset)
    codes += [*([inst.src2.offset] if hasattr(inst, "src2") else []), VCC][: len(kinds) - len(codes)]
    found = []
    for index, (code, kind) in enumerate(zip(codes, kinds, strict=True)):
        found.append(_source(inst, form, name, index, code, kind))
    if "old" in operation.operands:
        found.append(operands.read(inst.vdst.offset, operation.result))
    return found


def _source(inst: Any, form: str, name: str, index: int, code: int, kind: str) -> Read:
    literal = getattr(inst, "literal", None)
    accumulator = name in ("V_ACCVGPR_READ", "V_ACCVGPR_MOV_B32")
    if "_SDWA" in form and index < 2:
        scalar = bool(getattr(inst, f"s{index}"))
        base = operands.read(code - VGPR if scalar else code, "u32")
        source = operands.part(base, kind, getattr(inst, f"src{index}_sel"), bool(getattr(inst, f"src{index}_sext")))
    else:
        high = form in ("VOP3", "VOP3_SDST") and kind in _HALVES and bool(inst.opsel >> index & 1)
        source = operands.read(code, kind, literal, high, accumulator)
    if form.startswith(("VOP3", "VOP3SD")) and form not in ("VOP3P", "VOP3P_MFMA"):
        negate = bool(inst.neg >> index & 1)
        absolute = bool(getattr(inst, "abs", 0) >> index & 1)
    elif hasattr(inst, "src0_neg") and index < 2:
        negate, absolute = bool(getattr(inst, f"src{index}_neg")), bool(getattr(inst, f"src{index}_abs"))
    else:
        negate = absolute = False
    if not (negate or absolute):
        return source
    if kind not in _FLOATS:
        raise NotExecutable(f"{inst.op.name} with the sign of a whole number changed")
    return operands.signed(source, negate, absolute)


def _result(inst: Any, form: str, name: str, operation: Operation) -> Write:
    if operation.result == "mask":
        if form in ("VOP3_SDST", "VOP3"):
            return operands.write(inst.vdst.offset, "mask")
        return operands.write(inst.sdst.offset if getattr(inst, "sd", 0) else VCC, "mask")
    if "_SDWA" in form and hasattr(inst, "dst_sel"):
        if operation.result in ("u64", "i64") or inst.omod or inst.clmp:
            raise NotExecutable(f"{inst.op.name} in this form")
        put_part = operands.write_part(inst.vdst.offset - VGPR, inst.dst_sel, inst.dst_unused)
        halves = operation.result in _HALVES
        return lambda w, value: put_part(w, _word(value, halves))
    acc = name in ("V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32")
    high = form == "VOP3" and operation.result in _HALVES and bool(inst.opsel >> 3 & 1)
    put = operands.write(inst.vdst.offset, operation.result, high, acc)
    omod, clamp = (getattr(inst, "omod", 0), getattr(inst, "clmp", 0)) if form in ("VOP3", "VOP3SD") else (0, 0)
    if not (omod or clamp):
        return put
    if operation.result not in _FLOATS:
        raise NotExecutable(f"{inst.op.name} with clamp")
    factor = (1.0, 2.0, 4.0, 0.5)[omod]

    def scaled(w: Wave, value: Array) -> None:
        result = value * value.dtype.type(factor)
        put(w, np.fmin(np.fmax(result, 0), 1).astype(value.dtype) if clamp else result)

    return scaled


def _word(value: Array, half: bool) -> Array:
    return value.view(np.uint16).astype(np.uint32) if half else value.view(np.uint32)


def _dpp_sources(control: int) -> Array:
    """The lane that each lane reads; -1 if there is none."""
    lane = np.arange(LANES)
    row, place = lane & ~15, lane & 15
    if control < 0x100:
        return (lane & ~3) | control >> 2 * (lane & 3) & 3
    kind, count = control & 0x1F0, control & 15
    if kind == 0x100:
        return np.where(place + count < 16, lane + count, -1)
    if kind == 0x110:
        return np.where(place >= count, lane - count, -1)
    if kind == 0x120:
        return row | (place - count) & 15
    if control == 0x140:
        return row | 15 - place
    if control == 0x141:
        return (lane & ~7) | 7 - (lane & 7)
    if control == 0x142:
        return np.where(row > 0, row - 1, -1)
    if control == 0x143:
        return np.where(lane >= 32, 31, -1)
    if kind == 0x150:
        return row | count
    raise NotExecutable(f"DPP control {control:#x}")


def _with_lanes_of(inst: Any, step: Step) -> Step:
    """A DPP instruction: its first operand comes from other lanes."""
    sources, row = _dpp_sources(inst.dpp), inst.vsrc0.offset - VGPR
    lane = np.arange(LANES)
    allowed = (inst.row_mask >> (lane >> 4) & 1 & inst.bank_mask >> ((lane & 15) >> 2) & 1).astype(bool)
    zero_elsewhere = bool(inst.bc)

    def run(w: Wave) -> None:
        kept, mask, whole = w.v[row].copy(), w.m, w.whole
        there = (sources >= 0) & mask[sources]
        w.v[row] = np.where(there, kept[sources], np.uint32(0))
        w.m = mask & allowed & (there | zero_elsewhere)
        w.whole = bool(w.m.all())
        target = inst.vdst.offset - VGPR
        step(w)
        if target == row:
            kept = np.where(w.m, w.v[row], kept)
        w.v[row], w.m, w.whole = kept, mask, whole

    return run


def _matrix(inst: Any, name: str) -> Step:
    shape = matrix.shape(name)
    if shape is None:
        raise NotExecutable(inst.op.name)
    if inst.cbsz or inst.abid or inst.blgp:
        raise NotExecutable(f"{inst.op.name} with a broadcast or a negation")
    of_c = ACC if inst.acc_cd else 0
    a = inst.src0.offset - VGPR + (ACC if inst.acc & 1 else 0)
    b = inst.src1.offset - VGPR + (ACC if inst.acc & 2 else 0)
    d = inst.vdst.offset - VGPR + of_c
    code = inst.src2.offset
    c: Array | int
    if code >= VGPR:
        c = code - VGPR + of_c
    else:
        bits = operands.constant(code, None)
        if bits is None:
            raise NotExecutable(f"{inst.op.name} with C in a scalar register")
        c = np.array([bits], np.uint32).view(np.float32)
    return lambda w: matrix.multiply(w, shape, d, a, b, c)


_PACKED = {
    "V_PK_FMA_F32": 64, "V_PK_MUL_F32": 64, "V_PK_ADD_F32": 64, "V_PK_MOV_B32": 64, "V_PK_ADD_F16": 32,
    "V_PK_MUL_F16": 32, "V_PK_MAX_F16": 32, "V_PK_MIN_F16": 32, "V_PK_ADD_U16": 32, "V_PK_MUL_LO_U16": 32,
    "V_PK_LSHLREV_B16": 32, "V_PK_LSHRREV_B16": 32, "V_PK_SUB_I16": 32,
}  # fmt: skip
"""Instructions that do the same twice, and the bits of an operand."""
_PACKED_AS = {"V_PK_SUB_I16": "V_SUB_U16", "V_PK_MOV_B32": "V_PK_MOV_B32"}


def _packed(inst: Any, name: str) -> Step:
    if inst.clmp:
        raise NotExecutable(f"{inst.op.name} with clamp")
    wide = _PACKED[name] == 64
    single = name if wide else _PACKED_AS.get(name, name.replace("V_PK_", "V_"))
    operation = vector_table.OPERATIONS[single]
    kind = operation.operands[0]
    opsel_hi = inst.opsel_hi | inst.opsel_hi2 << 2
    codes = [inst.src0.offset, inst.src1.offset, inst.src2.offset][: len(operation.operands)]

    def sources(top: bool) -> list[Read]:
        found = []
        for index, code in enumerate(codes):
            chosen = bool((opsel_hi if top else inst.opsel) >> index & 1)
            negate = bool((inst.neg_hi if top else inst.neg) >> index & 1)
            if wide:
                constant = operands.constant(code, None) is not None
                source = operands.read(code + (1 if chosen and not constant else 0), kind)
            else:
                source = operands.read(code, kind, None, chosen)
            found.append(operands.signed(source, negate, False))
        return found

    low, top = sources(False), sources(True)
    if name == "V_PK_MOV_B32":
        # The lower result is the first operand's chosen half, the upper one the second's.
        low, top = [low[0], low[0]], [operands.read(codes[1] + (inst.opsel >> 1 & 1), kind)] * 2
    compute, target = operation.compute, inst.vdst.offset
    puts = (
        (operands.write(target, operation.result), operands.write(target + 1, operation.result))
        if wide
        else (operands.write(target, operation.result), operands.write(target, operation.result, high=True))
    )

    def step(w: Wave) -> None:
        results = [compute(*[source(w) for source in half]) for half in (low, top)]
        for put, result in zip(puts, results, strict=True):
            put(w, result)

    return step


# --- instructions of a form of their own: across lanes, or with a constant


def _first_lane(inst: Any) -> Step:
    source, target = operands.read(inst.src0.offset, "u32"), inst.vdst.offset & 0xFF
    put = _scalar_write(target, 32)

    def step(w: Wave) -> None:
        values = source(w)
        lane = int(np.argmax(w.m)) if len(values) > 1 else 0
        put(w, int(values[lane]))

    return step


def _read_lane(inst: Any) -> Step:
    source, lane = operands.read(inst.src0.offset, "u32"), _scalar_read(inst.src1.offset, 32, None)
    put = _scalar_write(inst.vdst.offset & 0xFF, 32)
    return lambda w: put(w, int(np.broadcast_to(source(w), LANES)[lane(w) & 63]))


def _write_lane(inst: Any) -> Step:
    value, lane = _scalar_read(inst.src0.offset, 32, None), _scalar_read(inst.src1.offset, 32, None)
    row = inst.vdst.offset - VGPR

    def step(w: Wave) -> None:
        w.v[row, lane(w) & 63] = value(w)

    return step


def _count_below(high: bool) -> Callable[[Any], Step]:
    """Bits of a mask below each lane, in the mask's lower or upper half."""
    lane = np.arange(LANES)
    below = np.minimum(lane, 32) if not high else np.maximum(lane - 32, 0)
    masks = ((1 << below.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)

    def make(inst: Any) -> Step:
        mask, base = operands.read(inst.src0.offset, "u32"), operands.read(inst.src1.offset, "u32")
        put = operands.write(inst.vdst.offset, "u32")
        return lambda w: put(w, np.bitwise_count(mask(w) & masks).astype(np.uint32) + base(w))

    return make


def _swap(inst: Any) -> Step:
    a, b = inst.vdst.offset - VGPR, inst.src0.offset - VGPR

    def step(w: Wave) -> None:
        w.v[[a, b]] = np.where(w.m, w.v[[b, a]], w.v[[a, b]])

    return step


def _any_function(inst: Any) -> Step:
    """``v_bitop3``: any function of three bits, given by its table of eight."""
    table = inst.omod << 6 | inst.abs << 3 | inst.neg
    sources = [operands.read(code.offset, "u32") for code in (inst.src0, inst.src1, inst.src2)]
    put = operands.write(inst.vdst.offset, "u32")
    if inst.opsel or inst.clmp:
        raise NotExecutable(f"{inst.op.name} in this form")

    def step(w: Wave) -> None:
        a, b, c = (source(w) for source in sources)
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
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


def _three_with_literal(inst: Any, operation: str, multiplies: bool) -> Step:
    a, b = (operands.read(field.offset, "f32", inst.literal) for field in (inst.src0, inst.vsrc1))
    literal = operands.read(LITERAL, "f32", inst.literal)
    factors = (a, literal, b) if multiplies else (a, b, literal)
    compute, put = vector_table.OPERATIONS[operation].compute, operands.write(inst.vdst.offset, "f32")
    return lambda w: put(w, compute(*[factor(w) for factor in factors]))


_OF_THEIR_OWN: dict[str, Callable[[Any], Step]] = {
    "V_READFIRSTLANE_B32": _first_lane, "V_READLANE_B32": _read_lane, "V_WRITELANE_B32": _write_lane,
    "V_MBCNT_LO_U32_B32": _count_below(False), "V_MBCNT_HI_U32_B32": _count_below(True), "V_SWAP_B32": _swap,
    "V_BITOP3_B32": _any_function,
}  # fmt: skip
