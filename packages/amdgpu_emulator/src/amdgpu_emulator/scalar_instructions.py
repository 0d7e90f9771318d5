"""Scalar instructions: operands and results of the operations in ``scalar_operations``."""

from collections.abc import Callable
from operator import attrgetter

from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import UnsupportedInstruction
from amdgpu_emulator.operands import constant, scalar_reader
from amdgpu_emulator.scalar_operations import SCALAR_OPERATIONS, ScalarOperation
from amdgpu_emulator.wave import EXEC, SGPR_PAIRS, SGPRS, Step, Waves

_MODE, _OF_PLACE = 1, (4, 20)
"""Registers of the hardware: how floats are rounded, and where a wave runs."""
_USUAL_MODE = 0x3F0
"""To the nearest, with denormals, and NaN as IEEE has it."""
ScalarRead = Callable[[Waves], list[int]]
ScalarWrite = Callable[[Waves, int | list[int]], None]
"""Writes a value of the right number of bits, one for all waves or one each."""


def scalar_read(code: int, kind: str, literal: int | None = None) -> ScalarRead:
    """Return the function that gives an operand of a type of 32 or 64 bits, one a wave."""
    fixed = constant(code, kind, literal)
    if fixed is not None:
        number = fixed.item()
        return lambda w: [number] * w.count
    read = scalar_reader(code, kind)
    return lambda w: read(w).tolist()


def scalar_write(code: int, bits: int) -> ScalarWrite:
    """Return the function that writes a result of 32 or 64 bits."""
    registers, places = attrgetter("s64" if bits == 64 else "s"), slice(32 * code // bits, None, 32 * SGPRS // bits)

    def put(w: Waves, value: int | list[int]) -> None:
        registers(w)[places] = value
        if code in (EXEC, EXEC + 1):
            w.refresh_exec()

    return put


def translate_scalar(inst: Instruction) -> Step:
    """Translate ``s_...``, but for branches, waits and loads."""
    name, literal = inst.name, inst.literal
    if name.endswith(("_SAVEEXEC_B64", "_WREXEC_B64")):
        return _save_exec(inst, literal)
    if name in ("S_GETREG_B32", "S_SETREG_B32", "S_SETREG_IMM32_B32"):
        return _hardware_register(inst)
    if name not in SCALAR_OPERATIONS:
        raise UnsupportedInstruction(inst.opcode)
    operation = SCALAR_OPERATIONS[name]
    # What has no field is what the result's register held.
    fields = ("sdst",) if inst.form.startswith("SOPK") else ("ssrc0", "ssrc1", "sdst")
    codes = [getattr(inst, field) for field in fields if hasattr(inst, field)]
    kinds = [kind for kind in operation.operands if kind != "scc"]
    reads = [scalar_read(code, kind, literal) for code, kind in zip(codes, kinds, strict=False)]
    if inst.form.startswith("SOPK"):
        value = inst.simm16 & 0xFFFF if kinds[1] == "u32" else inst.simm16
        reads.append(lambda w: [value] * w.count)
    if len(kinds) < len(operation.operands):
        reads.append(lambda w: w.scc)
    bits = int(operation.result[1:]) if operation.result != "scc" else 0
    return _step(operation, reads, scalar_write(inst.sdst, bits) if bits else None)


def _step(operation: ScalarOperation, reads: list[ScalarRead], put: ScalarWrite | None) -> Step:
    compute = operation.compute

    def step(w: Waves) -> None:
        operands = list(zip(*[read(w) for read in reads], strict=True))
        result, scc = compute(*operands[0])
        if operands.count(operands[0]) == w.count:
            # Nearly always the waves compute the same.
            if put is not None:
                put(w, result)
            if scc is not None:
                w.scc = [scc] * w.count
            return
        outcomes = [compute(*row) for row in operands]
        if put is not None:
            put(w, [value for value, _ in outcomes])
        if scc is not None:
            w.scc = [flag or 0 for _, flag in outcomes]

    return step


def _hardware_register(inst: Instruction) -> Step:
    """Read or write some bits of a register of the hardware. Of the mode only what is usual can be set."""
    name = inst.name
    register, first, bits = inst.simm16 & 63, inst.simm16 >> 6 & 31, (inst.simm16 >> 11 & 31) + 1
    usual, mask = (_USUAL_MODE if register == _MODE else 0) >> first, (1 << bits) - 1
    if name == "S_GETREG_B32":
        if register != _MODE and register not in _OF_PLACE:
            raise UnsupportedInstruction(f"{name} of the register {register}")
        put = scalar_write(inst.sdst, 32)
        return lambda w: put(w, usual & mask)
    if register != _MODE:
        raise UnsupportedInstruction(f"{name} of the register {register}")
    constant = inst.literal if name == "S_SETREG_IMM32_B32" else None
    read = scalar_read(inst.sdst, "u32") if constant is None else lambda w: [constant]

    def step(w: Waves) -> None:
        if any((value ^ usual) & mask for value in read(w)):
            raise UnsupportedInstruction(f"{name} of another mode of floats, from bit {first} on,")

    return step


def _save_exec(inst: Instruction, literal: int | None) -> Step:
    """Keep the mask, and combine it with an operand."""
    what = inst.name.removeprefix("S_").removesuffix("_B64").removesuffix("_SAVEEXEC").removesuffix("_WREXEC")
    # N1 inverts the operand, N2 the mask.
    operation = SCALAR_OPERATIONS.get(f"S_{what.replace('N1', 'N2')}_B64")
    if operation is None:
        raise UnsupportedInstruction(inst.opcode)
    compute, is_swapped = operation.compute, what.endswith("N1")
    source, keep = scalar_read(inst.ssrc0, "u64", literal), scalar_write(inst.sdst, 64)
    keeps_new = inst.name.endswith("_WREXEC_B64")

    def step(w: Waves) -> None:
        old, values = w.s64[EXEC // 2 :: SGPR_PAIRS].tolist(), source(w)
        pairs = zip(old, values, strict=True) if is_swapped else zip(values, old, strict=True)
        new = [compute(*pair)[0] for pair in pairs]
        keep(w, new if keeps_new else old)
        w.set_exec(new)
        w.scc = [int(mask != 0) for mask in new]

    return step
