"""The state of one wave: registers, mask, pending accesses to memory."""

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdgpu_emulator.access_check import AccessCheck
from amdgpu_emulator.memory import Allocation, GlobalMemory

LANES = 64
ROWS = 512
"""Vector registers: 256, and behind them as many accumulation registers."""
SGPRS = 128
VCC, M0, EXEC = 106, 124, 126
EVERY_LANE = (1 << LANES) - 1
UNWRITTEN = 0xFFFFFFFF
"""What registers hold before they are written: not a number in every float type."""

Array = NDArray[Any]
Pending = deque[tuple[int, Callable[[], None]]]
"""Addresses of instructions, and the accesses that they have issued."""


@dataclass(slots=True)
class Workgroup:
    """What the waves of a workgroup share, besides its LDS."""

    number: tuple[int, int, int] = (0, 0, 0)
    left: int = sys.maxsize
    """Instructions that its waves may still execute."""
    recent: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By wave: how often it has executed each basic block, since few instructions are left."""


class Wave:
    """One wave. ``v``, ``vi``, ``vf`` are the vector registers as unsigned, signed and float; ``s`` the scalar ones."""

    def __init__(
        self, number: int, memory: GlobalMemory, lds: Allocation, scratch: Allocation, eager: bool,
        group: Workgroup | None = None, check: AccessCheck | None = None,
    ) -> None:  # fmt: skip
        self.number, self.group, self.check = number, group or Workgroup(), check
        self.epoch = 0
        """Barriers that are behind the wave."""
        self.at = 0
        """Address in the code object of the access that is issued, or that takes place."""
        self.v: Array = np.full((ROWS, LANES), UNWRITTEN, np.uint32)
        self.vi, self.vf = self.v.view(np.int32), self.v.view(np.float32)
        self.s: Array = np.full(SGPRS, UNWRITTEN, np.uint32)
        self.si, self.sf = self.s.view(np.int32), self.s.view(np.float32)
        self.s64, self.si64, self.s8 = self.s.view(np.uint64), self.s.view(np.int64), self.s.view(np.uint8)
        self.memory, self.lds, self.scratch = memory, lds, scratch
        self.scc, self.pc = 0, 0
        self.eager = eager
        """Whether accesses to memory happen at once; else as late as the waits of the kernel allow."""
        self.vm: Pending = deque()
        self.lgkm: Pending = deque()
        self.scalar: Pending = deque()
        """Scalar loads, which count for the same waits as those of the LDS, but complete in any order."""
        self.set_exec(EVERY_LANE)

    def set_exec(self, mask: int) -> None:
        """Enable the lanes of a mask."""
        self.s64[EXEC // 2] = mask
        self.refresh_exec()

    def refresh_exec(self) -> None:
        """Take over what was written to the mask's registers."""
        self.m: Array = self.mask(EXEC)
        self.whole = bool(self.m.all())

    def mask(self, register: int) -> Array:
        """A pair of scalar registers as one truth value a lane."""
        return np.unpackbits(self.s8[4 * register : 4 * register + 8], bitorder="little").view(bool)

    def set_mask(self, register: int, lanes: Array) -> None:
        """Write one truth value a lane to a pair of scalar registers."""
        self.s[register : register + 2] = np.packbits(lanes, bitorder="little").view(np.uint32)
        if register == EXEC:
            self.refresh_exec()

    def issue(self, queue: Pending, access: Callable[[], None], is_atomic: bool = False) -> None:
        """Do an access to memory, now or at the wait for it."""
        if self.check is not None:
            access = self.check.watch(self, access, is_atomic)
        if self.eager:
            access()
        else:
            queue.append((self.at, access))

    def wait(self, vm: int, lgkm: int) -> None:
        """Complete the oldest accesses until no more than these are pending, and no scalar load that may be pending."""
        while len(self.vm) > vm:
            self._complete(self.vm)
        while len(self.lgkm) > lgkm:
            self._complete(self.lgkm)
        # While one access is pending, it may be any of these.
        while self.scalar and lgkm == 0:
            self._complete(self.scalar)

    def _complete(self, queue: Pending) -> None:
        self.at, access = queue.popleft()
        access()

    def write(self, row: int, values: Array, lanes: Array) -> None:
        """Write words [rows, active lanes] to vector registers from ``row`` on."""
        if len(lanes) == LANES:
            self.v[row : row + len(values)] = values
        else:
            self.v[row : row + len(values), lanes] = values


Step = Callable[[Wave], None]
"""Executes one instruction."""
