"""One launch: workgroups and their waves, in an order drawn from a seed."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from amdgpu_emulator.access_check import AccessCheck
from amdgpu_emulator.code_object import KernelDescriptor
from amdgpu_emulator.machine_code import BARRIER, END, PART, WAIT, MachineCode
from amdgpu_emulator.memory import PRIVATE_BASE, SHARED_BASE, Allocation, Array, GlobalMemory
from amdgpu_emulator.memory_instructions import SCRATCH_WORD
from amdgpu_emulator.wave import EXEC, LANES, SGPR_PAIRS, SGPRS, Waves, Workgroup

_UNWRITTEN_BYTE = 0xFF
"""Each byte of registers, LDS and scratch before it is written: not a number in every float type."""
_KERNARG, _SCRATCH_BUFFER, _SCRATCH = 8, 1, 32
"""Bits of a descriptor's properties."""


@dataclass(frozen=True)
class Dispatch:
    """One kernel over a grid of workgroups."""

    code: MachineCode
    kernel: KernelDescriptor
    kernarg: int
    """Address of its arguments in memory."""
    grid: tuple[int, int, int]
    """Workgroups along x, y and z."""
    block: tuple[int, int, int]
    """Threads of a workgroup along x, y and z."""
    dynamic_lds: int = 0
    """Bytes of LDS beside the kernel's own."""
    check: AccessCheck | None = None
    """Watches the accesses; None: nothing does."""
    most_instructions: int = 3_000_000
    """Of the waves of a workgroup together; with more it is a hang."""
    runs: Counter[int] = field(default_factory=Counter)
    """How often waves have run each basic block."""

    def execute(self, memory: GlobalMemory, seed: int) -> None:
        """Execute all workgroups. With seed 0 waves run in lock step, and accesses wait as long as they may."""
        rng = np.random.default_rng(seed)
        count = math.prod(self.grid)
        for place, number in enumerate(rng.permutation(count) if seed else range(count)):
            x, rest = int(number) % self.grid[0], int(number) // self.grid[0]
            group = (x, rest % self.grid[1], rest // self.grid[1])
            self._run_workgroup(group, count - 1 - place, memory, rng if seed else None)

    def _run_workgroup(
        self, number: tuple[int, int, int], not_run: int, memory: GlobalMemory, rng: np.random.Generator | None
    ) -> None:
        count = -(-math.prod(self.block) // LANES)
        group = Workgroup(number, count, self.most_instructions, not_run)
        if self.check:
            self.check.spins = self.code.spins
        lds_bytes = self.kernel.lds_bytes + self.dynamic_lds
        lds = Allocation(_poison(lds_bytes), "the LDS of a workgroup", is_written=False)
        lds.touched = self.check.touched if self.check else None
        scratch = Allocation(_poison(self.kernel.lane_bytes * LANES * count), "the scratch memory of a workgroup")
        own = [(base, one) for base, one in ((SHARED_BASE, lds), (PRIVATE_BASE, scratch)) if len(one.u8)]
        for base, one in own:
            memory.place(base, one)
        # In an order of their own the waves are alone; else all execute the same instruction at once.
        together = [[wave] for wave in range(count)] if rng else [[*range(count)]]
        waiting = list[Waves]()
        ready = [
            self._start(Waves(numbers, memory, lds, scratch, bool(rng and rng.integers(2)), group, self.check))
            for numbers in together
        ]
        while ready or waiting:
            if not ready:
                ready, waiting = sorted(waiting, key=lambda w: w.numbers[0]), []
            index = 0 if rng is None else int(rng.integers(len(ready)))
            stop = self.code.run(ready[index], self.runs)
            if stop == BARRIER:
                ready[index].epoch += 1
                waiting.append(ready.pop(index))
            elif stop == PART:
                ready[index : index + 1] = ready[index].parts()
            elif stop == WAIT:
                # What waits for others gives them a turn.
                ready.append(ready.pop(index))
            elif stop == END:
                # A barrier waits for the waves that still run.
                ready.pop(index)
            group.parts = ready
        for base, _ in own:
            memory.unmap(base)
        if self.check:
            self.check.end_workgroup(lds, number)

    def _start(self, w: Waves) -> Waves:
        """Give waves their first registers: user SGPRs, workgroup and work-item ids."""
        kernel = self.kernel
        for bit, register in kernel.user_registers():
            if bit == _KERNARG:
                w.s64[register // 2 :: SGPR_PAIRS] = self.kernarg
            elif bit == _SCRATCH_BUFFER:
                w.s_by_wave[:, register : register + 4] = 0, SCRATCH_WORD, 0xFFFFFFFF, 0
            elif bit == _SCRATCH:
                w.s64[register // 2 :: SGPR_PAIRS] = 0
        # Arguments that could lie in registers from the start are loaded by the code before the entry for those.
        register = kernel.rsrc2 >> 1 & 31
        for axis in range(3):
            if kernel.rsrc2 >> (7 + axis) & 1:
                w.s[register::SGPRS] = w.group.number[axis]
                register += 1
        # All waves have the same scratch memory, from its begin on.
        w.s[register::SGPRS] = 0
        thread = (LANES * w.numbers[:, None] + np.arange(LANES)).ravel()
        x, y, z = self.block
        # The ids of a work item in one register, ten bits each.
        w.v[0] = thread % x | thread // x % y << 10 | thread // (x * y) << 20
        w.set_mask(EXEC, thread < x * y * z)
        w.pc = self.code.base + kernel.entry
        return w


def _poison(size: int) -> Array:
    return np.full(size, _UNWRITTEN_BYTE, np.uint8)
