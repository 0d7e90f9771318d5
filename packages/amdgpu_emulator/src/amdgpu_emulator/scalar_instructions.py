"""Scalar instructions: operands and results of the operations in ``scalar_operations``."""

from collections.abc import Callable

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.memory import PRIVATE_BASE, SHARED_BASE
from amdgpu_emulator.operands import EXECZ, SCC, VCCZ, constant, constant_bits, scalar_flags
from amdgpu_emulator.scalar_operations import M32, M64, SCALAR_OPERATIONS, WITH_16_BITS, ScalarOperation, s16
from amdgpu_emulator.wave import EXEC, SGPR_PAIRS, SGPRS, Step, Waves

_APERTURES = {
    code + limit: base + limit * 0xFFFFFFFF
    for code, base in ((235, SHARED_BASE), (237, PRIVATE_BASE))
    for limit in (0, 1)
}
"""Operands that are the first and the last address of the LDS, and of the memory of a lane."""
_MODE, _OF_PLACE = 1, (4, 20)
"""Registers of the hardware: how floats are rounded, and where a wave runs."""
_USUAL_MODE = 0x3F0
"""To the nearest, with denormals, and NaN as IEEE has it."""
ScalarRead = Callable[[Waves], list[int]]
ScalarWrite = Callable[[Waves, int | list[int]], None]
"""Writes a value of the right number of bits, one for all waves or one each."""


def scalar_read(code: int, bits: int, literal: int | None) -> ScalarRead:
    """Return the function that gives an operand of 32 or 64 bits, one a wave."""
    if code in _APERTURES and bits == 64:
        aperture = _APERTURES[code]
        return lambda w: [aperture] * w.count
    value = constant_bits(code, literal)
    if value is not None:
        number = constant(code, value, f"u{bits}").item()
        return lambda w: [number] * w.count
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
    if name in ("S_GETREG_B32", "S_SETREG_B32", "S_SETREG_IMM32_B32"):
        return _hardware_register(inst, name)
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


def _hardware_register(inst: Instruction, name: str) -> Step:
    """Read or write some bits of a register of the hardware. Of the mode only what is usual can be set."""
    register, first, bits = inst.simm16 & 63, inst.simm16 >> 6 & 31, (inst.simm16 >> 11 & 31) + 1
    usual, mask = (_USUAL_MODE if register == _MODE else 0) >> first, (1 << bits) - 1
    if name == "S_GETREG_B32":
        if register != _MODE and register not in _OF_PLACE:
            raise UnsupportedInstruction(f"{name} of the register {register}")
        put = scalar_write(inst.sdst.offset, 32)
        return lambda w: put(w, usual & mask)
    if register != _MODE:
        raise UnsupportedInstruction(f"{name} of the register {register}")
    constant = inst.literal if name == "S_SETREG_IMM32_B32" else None
    read = scalar_read(inst.sdst.offset, 32, None) if constant is None else lambda w: [constant]

    def step(w: Waves) -> None:
        if any((value ^ usual) & mask for value in read(w)):
            raise UnsupportedInstruction(f"{name} of another mode of floats, from bit {first} on,")

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
