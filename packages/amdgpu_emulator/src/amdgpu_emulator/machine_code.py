"""Machine code in memory, decoded once and run by waves in lock step.

A basic block ends with a branch, a barrier, a wait or the end of the kernel. After all but a branch the scheduler
decides which waves go on. Waves that take different ways at a branch part.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import length_hint

import numpy as np

from amdgpu_emulator import decoder, instructions, spins
from amdgpu_emulator.decoder import Instruction
from amdgpu_emulator.faults import EmulationFault, EmulationHang, MemoryFault, UnsupportedInstruction
from amdgpu_emulator.operands import LITERAL
from amdgpu_emulator.scalar_instructions import scalar_read
from amdgpu_emulator.wave import EXEC, LANES, LOOK_AFTER, M0, SGPR_PAIRS, SGPRS, VCC, Step, Waves

BARRIER, WAIT, END, PART = "barrier", "wait", "end", "part"
_EVERYTHING = 1 << 20
_LONGEST_BLOCK = 256
"""Instructions that are translated before they are counted; code without a branch is several blocks."""
_LONGEST_SUM = 8
"""Instructions between that which reads the program counter and that which adds to it."""
_MOST_TRANSLATED = 200_000
"""Different instructions of a launch; large kernels have some 10,000."""
Jump = Callable[[Waves], str | None]

_BRANCHES: dict[str, Callable[[Waves], list[bool]]] = {
    "S_BRANCH": lambda w: [True] * w.count,
    "S_CBRANCH_SCC0": lambda w: [not scc for scc in w.scc],
    "S_CBRANCH_SCC1": lambda w: [bool(scc) for scc in w.scc],
    "S_CBRANCH_VCCZ": lambda w: (w.s64[VCC // 2 :: SGPR_PAIRS] == 0).tolist(),
    "S_CBRANCH_VCCNZ": lambda w: (w.s64[VCC // 2 :: SGPR_PAIRS] != 0).tolist(),
    "S_CBRANCH_EXECZ": lambda w: (w.s64[EXEC // 2 :: SGPR_PAIRS] == 0).tolist(),
    "S_CBRANCH_EXECNZ": lambda w: (w.s64[EXEC // 2 :: SGPR_PAIRS] != 0).tolist(),
}


@dataclass
class BasicBlock:
    """Instructions without a branch, and what follows them."""

    steps: list[Step]
    addresses: list[int]
    """Of the instructions, with the one that ends the block."""
    opcodes: list[str]
    jump: Jump
    """Sets the next address of the waves; says why they stop, if they do."""


class MachineCode:
    """The image of one code object, which lies in memory from the address ``base`` on."""

    def __init__(
        self, image: bytes, base: int, arch: str, text: tuple[int, int] | None = None,
        source: Callable[[int], str] = lambda address: "",
    ) -> None:  # fmt: skip
        """``text``: first address of the image's machine code, and the one behind it; ``None``: all of the image.

        ``source``: file and line of an address, or empty.
        """
        self._source = source
        self._image, self.base, self._arch = image, base, arch
        self._text = text or (0, len(image))
        self._blocks: dict[int, BasicBlock] = {}
        self.spins: set[int] = set()
        """Addresses in the code object of loads and atomic accesses in loops that wait for what they read."""
        self.begin_launch()

    def begin_launch(self, kernel: str = "", entry: int = 0) -> None:
        """Let another launch, of a kernel with this name and first address, translate as much as a launch may."""
        self._left_to_translate, self._kernel, self._entry = _MOST_TRANSLATED, kernel, entry

    def run(self, w: Waves, runs: Counter[int]) -> str:
        """Run waves up to the next barrier, wait or end, or up to where they part, and say which.

        ``runs`` counts, for each block by its address, the waves that have run it.
        """
        while True:
            # An address is even, and one more is the same code in index mode.
            start = w.pc + w.is_indexing
            block = self._blocks.get(start)
            if block is None:
                block = self._blocks[start] = self._translate(w.pc, w.is_indexing)
            runs[start] += w.count
            w.group.left -= w.count * len(block.addresses)
            if w.group.left < w.look_at:
                self._look(w)
            steps, place = iter(block.steps), -1
            try:
                for step in steps:
                    step(w)
                place = len(block.steps)
                stop = block.jump(w)
            except MemoryFault as fault:
                # The access was issued earlier.
                raise MemoryFault(f"{self._place(w, w.at, fault.lane)}: {fault}", fault.lane) from None
            except Exception as fault:
                # The steps that are left tell where; after the last one it is the jump.
                place = len(block.steps) - length_hint(steps) - (1 if place < 0 else 0)
                where = self._place(w, block.addresses[place] - self.base)
                if isinstance(fault, UnsupportedInstruction):
                    raise UnsupportedInstruction(f"{where}: {fault}{self._others(str(fault))}") from None
                if isinstance(fault, EmulationFault):
                    raise type(fault)(f"{where}: {fault}") from None
                # Registers that no wave has, at the least.
                raise UnsupportedInstruction(f"{where}: {fault!r}") from fault
            if stop:
                return stop

    def _place(self, w: Waves, address: int, lane: int = 0) -> str:
        """Return in words which instruction of which wave it is."""
        name = decoder.decode(self._image, address, self._arch).name
        source = f" ({self._source(address)})" if self._source(address) else ""
        wave = f"wave {w.numbers[lane // LANES]} of workgroup {w.group.number}"
        return f"{name} at {address:#x}{source} by {wave} of {self._kernel}"

    def _others(self, said: str) -> str:
        """Return in words what else of the kernel is not emulated, so that all is known at once."""
        others = missing(self._image, self._entry, self._text, self._arch).values() if self._kernel else ()
        names = sorted({what for what in others if not said.startswith(what)})
        return f"; nor is what it may reach later: {', '.join(names)}" if names else ""

    def _look(self, w: Waves) -> None:
        """Cut short what can never end: all waves of a workgroup that are not at a barrier repeat what they do."""
        if w.group.left < LOOK_AFTER:
            self._look_for_loop(w)
        elif w.repeats():
            w.is_stuck_at = w.group.stores
            if all(part.is_stuck_at == w.group.stores for part in (w, *w.group.parts)):
                w.group.left = LOOK_AFTER

    def _look_for_loop(self, w: Waves) -> None:
        """Note what waves execute when their workgroup has nearly used up its instructions; then it is a loop."""
        wave = int(w.numbers[0])
        recent = w.group.recent[wave]
        recent[w.pc + w.is_indexing] += 1
        if w.group.left < 0:
            loop = [start for start, times in recent.items() if times > 1]
            places = sorted(self.addresses(loop or [w.pc + w.is_indexing]))
            source = f" ({self._source(places[0])})" if self._source(places[0]) else ""
            where = f"the {'loop' if loop else 'code'} from {places[0]:#x} to {places[-1]:#x}{source}"
            code = ((at, decoder.decode(self._image, at, self._arch)) for at in places if loop)
            polls = [at for at, inst in code if instructions.polls_memory(inst)]
            if polls and w.group.not_run:
                raise UnsupportedInstruction(
                    f"wave {wave} of workgroup {w.group.number} waits in {where}, by what it reads at {polls[0]:#x}, "
                    f"for one of the {w.group.not_run} workgroups that have not run: they run one after the other"
                )
            raise EmulationHang(
                f"wave {wave} of workgroup {w.group.number} does not end: it is in {where} when the waves of the "
                "workgroup have executed all instructions that they may"
            )

    def opcodes(self, runs: Counter[int]) -> Counter[str]:
        """Count how often each opcode was executed, by the runs of basic blocks."""
        counts: Counter[str] = Counter()
        for start, times in runs.items():
            for name in self._blocks[start].opcodes:
                counts[name.lower()] += times
        return counts

    def addresses(self, starts: Iterable[int]) -> set[int]:
        """Return the addresses in the code object of all instructions of some basic blocks."""
        return {address - self.base for start in starts for address in self._blocks[start].addresses}

    def _translate(self, start: int, is_indexing: bool) -> BasicBlock:
        block = BasicBlock([], [], [], lambda w: END)
        address = start
        while len(block.addresses) < _LONGEST_BLOCK:
            if not self._text[0] <= address - self.base < self._text[1] or address % 4:
                raise EmulationFault(f"a jump to {address:#x}, where no machine code is")
            inst = decoder.decode(self._image, address - self.base, self._arch)
            after = address + inst.size
            block.addresses.append(address)
            block.opcodes.append(inst.name)
            self._left_to_translate -= 1
            if self._left_to_translate < 0:
                raise UnsupportedInstruction(f"a launch with more than {_MOST_TRANSLATED} different instructions")
            jump = _jump(inst, after)
            if jump is not None:
                block.jump = jump
                if inst.name in _BRANCHES and inst.simm16 < 0:
                    target = after + 4 * inst.simm16 - self.base
                    self.spins |= spins.waiting_accesses(self._image, target, after - self.base, self._arch)
                return block
            step = _translated(inst, is_indexing)
            if isinstance(step, str) or instructions.accesses_memory(inst):
                step = _placed(step, address - self.base)
            block.steps.append(step)
            address = after
        block.jump = lambda w: _go_on(w, [address] * w.count)
        return block


def missing(image: bytes, entry: int, text: tuple[int, int], arch: str) -> dict[int, str]:
    """Return the addresses of instructions that are not emulated, of all that a kernel may reach, and what is missing.

    The targets of calls are known where the code computes them from its own address.
    """
    found: dict[int, str] = {}
    seen: set[int] = set()
    todo = [entry]
    while todo:
        for address, inst in decoder.listing(image, todo.pop(), text[1], arch):
            if address in seen or address < text[0]:
                break
            seen.add(address)
            if isinstance(inst, str):
                found[address] = inst
                break
            after = address + inst.size
            if inst.name in _BRANCHES or inst.name == "S_CALL_B64":
                todo.append(after + 4 * inst.simm16)
            elif inst.name == "S_GETPC_B64":
                todo += _behind(image, after, inst.sdst, arch)
            elif _jump(inst, after) is None and isinstance(what := _translated(inst), str):
                found[address] = what
            if inst.name in ("S_BRANCH", "S_SETPC_B64", "S_ENDPGM"):
                break
    return dict(sorted(found.items()))


def _behind(image: bytes, start: int, register: int, arch: str) -> list[int]:
    """Return the address that is made of the program counter in a register by the sum that follows."""
    for _, inst in itertools.islice(decoder.listing(image, start, len(image), arch), _LONGEST_SUM):
        if isinstance(inst, str) or inst.name == "S_ENDPGM":
            break
        if (inst.name, getattr(inst, "sdst", None), getattr(inst, "ssrc1", None)) == ("S_ADD_U32", register, LITERAL):
            return [start + inst.literal - ((inst.literal & 1 << 31) << 1)]
    return []


def _translated(inst: Instruction, is_indexing: bool = False) -> Step | str:
    """Return what executes an instruction without a branch, or in words that it is not emulated."""
    try:
        return instructions.moved(inst) if is_indexing and inst.name.startswith("V_") else instructions.translate(inst)
    except UnsupportedInstruction as fault:
        return str(fault)
    except Exception as fault:
        # Fields may hold what no assembler writes.
        return f"{inst.opcode} ({fault!r})"


def _placed(step: Step | str, address: int) -> Step:
    """Return a step that tells the waves its address, or what is never reached: that which cannot be executed."""

    def run(w: Waves) -> None:
        w.at = address
        if isinstance(step, str):
            raise UnsupportedInstruction(f"{step} is not emulated")
        step(w)

    return run


def _jump(inst: Instruction, after: int) -> Jump | None:
    """Return how an instruction ends a block; ``None`` if it does not."""
    name = inst.name
    if name in _BRANCHES:
        taken, target = _BRANCHES[name], after + 4 * inst.simm16
        return lambda w: _go_on(w, [target if way else after for way in taken(w)])
    if name == "S_WAITCNT":
        vm = inst.simm16 & 15 | inst.simm16 >> 10 & 48
        lgkm = inst.simm16 >> 8 & 15
        # A counter that is full waits for nothing.
        return _stop(WAIT, after, vm if vm < 63 else _EVERYTHING, lgkm if lgkm < 15 else _EVERYTHING)
    if name == "S_BARRIER":
        return _stop(BARRIER, after, _EVERYTHING, _EVERYTHING)
    if name == "S_ENDPGM":
        return _stop(END, after, 0, 0)
    if name in ("S_SET_GPR_IDX_ON", "S_SET_GPR_IDX_OFF"):
        return _index_mode(inst, after)
    if name in ("S_SETPC_B64", "S_SWAPPC_B64", "S_GETPC_B64", "S_CALL_B64"):
        return _far_jump(inst, after)
    return None


def _go_on(w: Waves, targets: list[int]) -> str | None:
    """Go on where each wave wants to: together if that is one place."""
    w.pc, w.targets = targets[0], targets
    return None if targets.count(w.pc) == w.count else PART


def _stop(reason: str, after: int, vm: int, lgkm: int) -> Jump:
    """Let other waves go on once so many accesses at most are pending."""

    def stop(w: Waves) -> str:
        w.wait(vm, lgkm)
        w.pc = after
        return reason

    return stop


def _index_mode(inst: Instruction, after: int) -> Jump:
    """Return what begins or ends index mode: in M0 lie an index and, above, of which registers it moves the number."""
    is_on = inst.name == "S_SET_GPR_IDX_ON"
    index = scalar_read(inst.ssrc0, "u32") if is_on else None

    def jump(w: Waves) -> str | None:
        if index is not None:
            # The second operand is no register, but four bits.
            w.s[M0::SGPRS] = w.s[M0::SGPRS] & 0xFFFF0F00 | np.array(index(w)) & 0xFF | (inst.ssrc1 & 15) << 12
        w.is_indexing = is_on
        return _go_on(w, [after] * w.count)

    return jump


def _far_jump(inst: Instruction, after: int) -> Jump:
    def jump(w: Waves) -> str | None:
        targets = [after + 4 * inst.simm16] * w.count if inst.name == "S_CALL_B64" else [after] * w.count
        if inst.name in ("S_SETPC_B64", "S_SWAPPC_B64"):
            targets = w.s64[inst.ssrc0 // 2 :: SGPR_PAIRS].tolist()
        if inst.name != "S_SETPC_B64":
            w.s64[inst.sdst // 2 :: SGPR_PAIRS] = after
        return _go_on(w, targets)

    return jump
