"""Loops that wait for what another wave writes: their loads are meant as flags, and order what the waves access."""

from amdgpu_emulator import decoder
from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.operands import SCC
from amdgpu_emulator.wave import EXEC, VCC

_LONGEST = 1024
"""Bytes of a loop that waits."""
_SOURCES = ("src0", "src1", "src2", "vsrc0", "vsrc1", "ssrc0", "ssrc1")
_RESULTS = ("vdst", "sdst")
_CONDITIONS = {"SCC0": SCC, "SCC1": SCC, "VCCZ": VCC, "VCCNZ": VCC, "EXECZ": EXEC, "EXECNZ": EXEC}


def waiting_accesses(image: bytes, begin: int, end: int, arch: str) -> set[int]:
    """Return the addresses of the loads and atomic accesses in a loop that decide whether it ends.

    They read one place again and again: their address does not change in the loop.
    """
    if not 0 <= begin < end <= begin + _LONGEST:
        return set()
    loop = [(at, inst) for at, inst in decoder.listing(image, begin, end, arch) if not isinstance(inst, str)]
    if any(inst.name == "S_BARRIER" for _, inst in loop) or not any(_reads_memory(inst) for _, inst in loop):
        return set()
    written = set().union(*(_written(inst) for _, inst in loop))
    return {
        at for place, (at, inst) in enumerate(loop) if _reads_memory(inst)
        and (inst.vaddr if inst.form == "MUBUF" else inst.addr) not in written and _decides(loop, place)
    }  # fmt: skip


def _reads_memory(inst: Instruction) -> bool:
    form, name = inst.form, inst.name
    if form == "DS":
        return "READ" in name or "_RTN_" in name
    return form in ("GLOBAL", "FLAT", "MUBUF") and ("_LOAD_" in name or ("_ATOMIC_" in name and bool(inst.sc0)))


def _registers(inst: Instruction, fields: tuple[str, ...]) -> set[int]:
    """Return the registers of some operands; each may have two words."""
    first = {getattr(inst, field) for field in fields if hasattr(inst, field)}
    return first | {register + 1 for register in first}


def _written(inst: Instruction) -> set[int]:
    name, form = inst.name, inst.form
    if form in ("DS", "GLOBAL", "FLAT", "MUBUF"):
        return {inst.vdata if form == "MUBUF" else inst.vdst} if _reads_memory(inst) else set()
    results = _registers(inst, _RESULTS)
    if name.startswith("V_CMP") and form.startswith("VOPC"):
        results |= {VCC, VCC + 1}
    if "SAVEEXEC" in name or name.startswith("V_CMPX"):
        results |= {EXEC, EXEC + 1}
    return results | ({SCC} if form.startswith("SOP") and form != "SOPP" else set())


def _decides(loop: list[tuple[int, Instruction]], place: int) -> bool:
    """Return whether a branch of the loop depends on what an access has read."""
    tainted = _written(loop[place][1])
    for _, inst in loop[place + 1 :]:
        name = inst.name
        if _CONDITIONS.get(name.removeprefix("S_CBRANCH_")) in tainted:
            return True
        if _registers(inst, _SOURCES) & tainted or ("CNDMASK" in name and VCC in tainted):
            tainted |= _written(inst)
    return False
