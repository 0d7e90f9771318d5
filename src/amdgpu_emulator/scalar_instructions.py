"""Scalar instructions: operands and results of the operations in ``scalar_operations``."""

from collections.abc import Callable

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.operands import EXECZ, LITERAL, SCC, VCCZ, constant_bits, scalar_flag
from amdgpu_emulator.scalar_operations import M32, OPERATIONS, WITH_16_BITS, ScalarOperation, s16
from amdgpu_emulator.wave import EXEC, Step, Wave

ScalarRead = Callable[[Wave], int]
ScalarWrite = Callable[[Wave, int], None]


def scalar_read(code: int, bits: int, literal: int | None) -> ScalarRead:
    """Function that gives an operand of 32 or 64 bits."""
    value = constant_bits(code, literal)
    if value is not None:
        if bits == 64 and code != LITERAL and value >> 31 and code < 240:
            value |= 0xFFFFFFFF << 32
        return lambda w: value
    if code in (SCC, VCCZ, EXECZ):
        return lambda w: scalar_flag(w, code)
    if code >= 128:
        raise UnsupportedInstruction(f"the scalar operand {code}")
    if bits == 64:
        pair = code // 2
        return lambda w: w.s64.item(pair)
    return lambda w: w.s.item(code)


def scalar_write(code: int, bits: int) -> ScalarWrite:
    """Function that writes a result of 32 or 64 bits."""
    mask, pair = (1 << bits) - 1, code // 2
    if code in (EXEC, EXEC + 1):

        def put_exec(w: Wave, value: int) -> None:
            (w.s64 if bits == 64 else w.s)[pair if bits == 64 else code] = value & mask
            w.refresh_exec()

        return put_exec

    def put_pair(w: Wave, value: int) -> None:
        w.s64[pair] = value & mask

    def put(w: Wave, value: int) -> None:
        w.s[code] = value & mask

    return put_pair if bits == 64 else put


def translate_scalar(inst: Instruction, encoding: str, name: str) -> Step:
    """``s_...``, but for branches, waits and loads."""
    literal = getattr(inst, "literal", None)
    if name.endswith(("_SAVEEXEC_B64", "_WREXEC_B64")):
        return _save_exec(inst, name, literal)
    if encoding.startswith("SOPK") and name in WITH_16_BITS:
        operation = WITH_16_BITS[name]
        constant = inst.simm16 if name.endswith("_U32") else s16(inst.simm16) & M32
        reads = [scalar_read(inst.sdst.offset, 32, None), lambda w: constant]
    elif name in OPERATIONS:
        operation = OPERATIONS[name]
        codes = [inst.ssrc0.offset] + ([inst.ssrc1.offset] if encoding.startswith(("SOP2", "SOPC")) else [])
        if len(codes) < len(operation.operands):
            # What the result's register held.
            codes.append(inst.sdst.offset)
        reads = [scalar_read(code, bits, literal) for code, bits in zip(codes, operation.operands, strict=True)]
    else:
        raise UnsupportedInstruction(inst.op.name)
    return _step(operation, reads, scalar_write(inst.sdst.offset, operation.bits) if operation.bits else None)


def _step(operation: ScalarOperation, reads: list[ScalarRead], put: ScalarWrite | None) -> Step:
    compute, takes_scc = operation.compute, operation.takes_scc
    if len(reads) == 2 and put is not None and not takes_scc:
        first, second = reads

        # The most frequent form.
        def step_of_two(w: Wave) -> None:
            result, scc = compute(first(w), second(w))
            put(w, result)
            if scc is not None:
                w.scc = scc

        return step_of_two

    def step(w: Wave) -> None:
        values = [read(w) for read in reads]
        result, scc = compute(*values, w.scc) if takes_scc else compute(*values)
        if put is not None:
            put(w, result)
        if scc is not None:
            w.scc = scc

    return step


def _save_exec(inst: Instruction, name: str, literal: int | None) -> Step:
    """Keep the mask, and combine it with an operand."""
    what = name.removeprefix("S_").removesuffix("_B64").removesuffix("_SAVEEXEC").removesuffix("_WREXEC")
    # N1 inverts the operand, N2 the mask.
    operation = OPERATIONS.get(f"S_{what.replace('N1', 'N2')}_B64")
    if operation is None:
        raise UnsupportedInstruction(inst.op.name)
    compute, is_swapped = operation.compute, what.endswith("N1")
    source, keep = scalar_read(inst.ssrc0.offset, 64, literal), scalar_write(inst.sdst.offset, 64)
    keeps_new = name.endswith("_WREXEC_B64")

    def step(w: Wave) -> None:
        old, value = w.s64.item(EXEC // 2), source(w)
        new, _ = compute(old, value) if is_swapped else compute(value, old)
        keep(w, new if keeps_new else old)
        w.set_exec(new)
        w.scc = int(new != 0)

    return step
