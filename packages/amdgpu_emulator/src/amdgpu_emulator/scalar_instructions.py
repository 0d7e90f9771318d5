"""Scalar instructions: operands and results of the operations in ``scalar_operations``."""

from collections.abc import Callable

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.operands import EXECZ, LITERAL, SCC, VCCZ, constant_bits, scalar_flags
from amdgpu_emulator.scalar_operations import M32, M64, SCALAR_OPERATIONS, WITH_16_BITS, ScalarOperation, s16
from amdgpu_emulator.wave import EXEC, SGPR_PAIRS, SGPRS, Step, Waves

ScalarRead = Callable[[Waves], list[int]]
ScalarWrite = Callable[[Waves, int | list[int]], None]
"""Writes a value of the right number of bits, one for all waves or one each."""


def scalar_read(code: int, bits: int, literal: int | None) -> ScalarRead:
    """Return the function that gives an operand of 32 or 64 bits, one a wave."""
    value = constant_bits(code, literal)
    if value is not None:
        if bits == 64 and code != LITERAL and value >> 31 and code < 240:
            value |= 0xFFFFFFFF << 32
        return lambda w: [value] * w.count
    if code in (SCC, VCCZ, EXECZ):
        return lambda w: scalar_flags(w, code)
    if code >= 128:
        raise UnsupportedInstruction(f"the scalar operand {code}")
    if bits == 64:
        pair = code // 2
        return lambda w: w.s64[pair::SGPR_PAIRS].tolist()
    return lambda w: w.s[code::SGPRS].tolist()


def scalar_write(code: int, bits: int) -> ScalarWrite:
    """Return the function that writes a result of 32 or 64 bits."""
    pair = code // 2

    def put_pair(w: Waves, value: int | list[int]) -> None:
        w.s64[pair::SGPR_PAIRS] = value

    def put_word(w: Waves, value: int | list[int]) -> None:
        w.s[code::SGPRS] = value

    put = put_pair if bits == 64 else put_word

    def put_exec(w: Waves, value: int | list[int]) -> None:
        put(w, value)
        w.refresh_exec()

    return put_exec if code in (EXEC, EXEC + 1) else put


def translate_scalar(inst: Instruction, encoding: str, name: str) -> Step:
    """Translate ``s_...``, but for branches, waits and loads."""
    literal = getattr(inst, "literal", None)
    if name.endswith(("_SAVEEXEC_B64", "_WREXEC_B64")):
        return _save_exec(inst, name, literal)
    if encoding.startswith("SOPK") and name in WITH_16_BITS:
        operation = WITH_16_BITS[name]
        constant = inst.simm16 if name.endswith("_U32") else s16(inst.simm16) & M32
        reads = [scalar_read(inst.sdst.offset, 32, None), lambda w: [constant] * w.count]
    elif name in SCALAR_OPERATIONS:
        operation = SCALAR_OPERATIONS[name]
        codes = [inst.ssrc0.offset] + ([inst.ssrc1.offset] if encoding.startswith(("SOP2", "SOPC")) else [])
        if len(codes) < len(operation.operands):
            # What the result's register held.
            codes.append(inst.sdst.offset)
        reads = [scalar_read(code, bits, literal) for code, bits in zip(codes, operation.operands, strict=True)]
    else:
        raise UnsupportedInstruction(inst.op.name)
    return _step(operation, reads, scalar_write(inst.sdst.offset, operation.bits) if operation.bits else None)


def _step(operation: ScalarOperation, reads: list[ScalarRead], put: ScalarWrite | None) -> Step:
    compute, mask = operation.compute, (1 << operation.bits) - 1
    if operation.takes_scc:
        reads = [*reads, lambda w: w.scc]

    def step(w: Waves) -> None:
        operands = list(zip(*[read(w) for read in reads], strict=True))
        result, scc = compute(*operands[0])
        if operands.count(operands[0]) == w.count:
            # Nearly always the waves compute the same.
            if put is not None:
                put(w, result & mask)
            if scc is not None:
                w.scc = [scc] * w.count
            return
        outcomes = [compute(*row) for row in operands]
        if put is not None:
            put(w, [value & mask for value, _ in outcomes])
        if scc is not None:
            w.scc = [flag or 0 for _, flag in outcomes]

    return step


def _save_exec(inst: Instruction, name: str, literal: int | None) -> Step:
    """Keep the mask, and combine it with an operand."""
    what = name.removeprefix("S_").removesuffix("_B64").removesuffix("_SAVEEXEC").removesuffix("_WREXEC")
    # N1 inverts the operand, N2 the mask.
    operation = SCALAR_OPERATIONS.get(f"S_{what.replace('N1', 'N2')}_B64")
    if operation is None:
        raise UnsupportedInstruction(inst.op.name)
    compute, is_swapped = operation.compute, what.endswith("N1")
    source, keep = scalar_read(inst.ssrc0.offset, 64, literal), scalar_write(inst.sdst.offset, 64)
    keeps_new = name.endswith("_WREXEC_B64")

    def step(w: Waves) -> None:
        old, values = w.s64[EXEC // 2 :: SGPR_PAIRS].tolist(), source(w)
        pairs = zip(old, values, strict=True) if is_swapped else zip(values, old, strict=True)
        new = [compute(*pair)[0] & M64 for pair in pairs]
        keep(w, new if keeps_new else old)
        w.set_exec(new)
        w.scc = [int(mask != 0) for mask in new]

    return step
