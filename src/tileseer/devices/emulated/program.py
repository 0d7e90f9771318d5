"""A kernel's machine code, decoded once and run wave by wave.

Code is translated in blocks: up to a branch, a barrier, a wait or the end. After a barrier, a wait and the end the
scheduler decides which wave goes on.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import length_hint
from typing import Any

from tinygrad.renderer.amd import decode_inst

from tileseer.devices.emulated import translate
from tileseer.devices.emulated.faults import EmulationFault, NotExecutable
from tileseer.devices.emulated.scalar_table import s16
from tileseer.devices.emulated.wave import EXEC, VCC, Wave

BARRIER, WAIT, END = "barrier", "wait", "end"
_LONGEST = 16
"""Bytes of the longest instruction."""
_EVERYTHING = 1 << 20
_VOP3P, _OLD_BF16, _MOVED = b"\xd3", range(0x63, 0x68), 6
"""The products of bf16 have other numbers on gfx90a (there ..._bf16_1k), in the same order."""
_OLD_NAMES = {"V_DOT2C_F32_BF16": "V_MAC_F32", "V_FMAMK_F32": "V_MADMK_F32", "V_FMAAK_F32": "V_MADAK_F32"}
"""What numbers of later GPUs mean on gfx90a: a product and a sum, each rounded."""
Jump = Callable[[Wave], str | None]

_BRANCHES: dict[str, Callable[[Wave], bool]] = {
    "S_BRANCH": lambda w: True,
    "S_CBRANCH_SCC0": lambda w: not w.scc,
    "S_CBRANCH_SCC1": lambda w: bool(w.scc),
    "S_CBRANCH_VCCZ": lambda w: w.s64.item(VCC // 2) == 0,
    "S_CBRANCH_VCCNZ": lambda w: w.s64.item(VCC // 2) != 0,
    "S_CBRANCH_EXECZ": lambda w: w.s64.item(EXEC // 2) == 0,
    "S_CBRANCH_EXECNZ": lambda w: w.s64.item(EXEC // 2) != 0,
}


@dataclass
class Block:
    """Instructions without a branch, and what follows them."""

    steps: list[translate.Step]
    addresses: list[int]
    names: list[str]
    jump: Jump
    """Sets the wave's next address; says why the wave stops, if it does."""
    runs: int = 0


class Program:
    """The code of one code object; addresses are those in ``base``'s memory."""

    def __init__(self, code: bytes, base: int, arch: str) -> None:
        self._code, self._base = code, base
        self._is_old = arch == "gfx90a"
        self.blocks: dict[int, Block] = {}

    def run(self, w: Wave) -> str:
        """Run a wave up to the next barrier, wait or end; says which."""
        while True:
            block = self.blocks.get(w.pc)
            if block is None:
                block = self.blocks[w.pc] = self._translate(w.pc)
            block.runs += 1
            steps, place = iter(block.steps), -1
            try:
                for step in steps:
                    step(w)
                place = len(block.steps)
                stop = block.jump(w)
            except EmulationFault as fault:
                # The steps that are left tell where; after the last one it is the jump, with the accesses it waits for.
                place = len(block.steps) - length_hint(steps) - (1 if place < 0 else 0)
                where = f"{block.names[place]} at {block.addresses[place] - self._base:#x}"
                raise type(fault)(f"{where}: {fault}") from None
            if stop:
                return stop

    def executed(self) -> int:
        """Instructions that all waves together have executed."""
        return sum(block.runs * (len(block.names)) for block in self.blocks.values())

    def opcodes(self) -> Counter[str]:
        """How often all waves together have executed each opcode."""
        counts: Counter[str] = Counter()
        for block in self.blocks.values():
            for name in block.names:
                counts[name.lower()] += block.runs
        return counts

    def decode(self, address: int) -> Any:
        """The instruction at an address; ``NotExecutable`` if there is none."""
        at = address - self._base
        content = self._code[at : at + _LONGEST]
        if self._is_old and content[3:4] == _VOP3P and content[2] & 0x7F in _OLD_BF16:
            content = content[:2] + bytes([content[2] - _MOVED]) + content[3:]
        try:
            return decode_inst(content, "cdna")
        except (ValueError, AssertionError) as error:
            raise NotExecutable(f"no instruction at {at:#x}: {self._code[at : at + 8].hex()} ({error})") from error

    def _translate(self, start: int) -> Block:
        block = Block([], [], [], lambda w: END)
        address = start
        while True:
            inst = self.decode(address)
            name, after = translate.plain_name(inst), address + inst.size()
            name = _OLD_NAMES.get(name, name) if self._is_old else name
            block.addresses.append(address)
            block.names.append(name)
            jump = _jump(inst, name, address, after)
            if jump is not None:
                block.jump = jump
                return block
            try:
                block.steps.append(translate.step_of(inst, name))
            except NotExecutable as fault:
                # What is never reached may be what cannot be executed.
                block.steps.append(_refusing(str(fault)))
            address = after


def _refusing(what: str) -> translate.Step:
    def step(w: Wave) -> None:
        raise NotExecutable(f"{what} is not in the table of opcodes")

    return step


def _jump(inst: Any, name: str, address: int, after: int) -> Jump | None:
    """How an instruction ends a block; ``None`` if it does not."""
    if name in _BRANCHES:
        taken, target = _BRANCHES[name], after + 4 * s16(inst.simm16)

        def branch(w: Wave) -> None:
            w.pc = target if taken(w) else after

        return branch
    if name == "S_WAITCNT":
        vm = inst.simm16 & 15 | inst.simm16 >> 14 << 4
        lgkm = inst.simm16 >> 8 & 15
        # A counter that is full waits for nothing.
        vm, lgkm = (vm if vm < 63 else _EVERYTHING), (lgkm if lgkm < 15 else _EVERYTHING)

        def wait(w: Wave) -> str:
            w.wait(vm, lgkm)
            w.pc = after
            return WAIT

        return wait
    if name == "S_BARRIER":

        def barrier(w: Wave) -> str:
            w.pc = after
            return BARRIER

        return barrier
    if name == "S_ENDPGM":

        def end(w: Wave) -> str:
            w.wait(0, 0)
            return END

        return end
    return _far_jump(inst, name, after)


def _far_jump(inst: Any, name: str, after: int) -> Jump | None:
    if name not in ("S_SETPC_B64", "S_SWAPPC_B64", "S_GETPC_B64", "S_CALL_B64"):
        return None

    def jump(w: Wave) -> None:
        target = w.s64.item(inst.ssrc0.offset // 2) if hasattr(inst, "ssrc0") else after + 4 * s16(inst.simm16)
        if name != "S_SETPC_B64":
            w.s64[inst.sdst.offset // 2] = after
        w.pc = after if name == "S_GETPC_B64" else target

    return jump
