"""The state of waves in lock step: registers, masks, pending accesses to memory."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from amdgpu_emulator.access_check import AccessCheck
from amdgpu_emulator.memory import Accesses, Allocation, Array, GlobalMemory

LANES = 64
LOOK_AFTER = 20_000
"""Instructions of a workgroup between looks at what its waves do, and at its end, when all are looked at."""
REGISTER_ROWS = 512
"""Vector registers: 256, and behind them as many accumulation registers."""
SGPRS = 128
SGPR_PAIRS = SGPRS // 2
VCC, M0, EXEC = 106, 124, 126
EVERY_LANE = (1 << LANES) - 1
UNWRITTEN_WORD = 0xFFFFFFFF
"""What registers hold before they are written: not a number in every float type."""
UNWRITTEN_WORDS: Array = np.full((4, 1), UNWRITTEN_WORD, np.uint32)
"""What a load leaves in its registers from its issue on, up to the wait for it."""
NO_DATA: Array = np.empty((0, 0), np.uint32)


class Issue(NamedTuple):
    """When an instruction of some waves issues an access to memory."""

    address: int = 0
    """Of the instruction, in the code object."""
    epoch: int = 0
    """Barriers that are behind the waves."""
    number: int = 0
    """Accesses that they had issued before."""
    is_settled: bool = True
    """Whether those of them to global memory were done."""
    is_quiet: bool = True
    """Whether all of them were done, also those to the LDS."""


@dataclass(slots=True)
class Transfer:
    """What an instruction of some waves has issued: an access to memory, which takes place later."""

    places: tuple[Accesses, ...]
    complete: Callable[[Waves, Transfer], None]
    """Lets the access take place."""
    data: Array = field(default_factory=lambda: NO_DATA)
    """What is stored [rows, active lanes], read from registers at the issue."""
    atomic: str = ""
    """What an atomic access does, such as ``ADD``, or one to the cache."""
    scope: int = 0
    """Bits ``sc0`` and ``sc1`` of a load or store."""
    issue: Issue = field(default_factory=Issue)

    def of_waves(self, which: Sequence[int]) -> Transfer:
        """Return the part of some waves, by their place among those that issued it."""
        waves = self.places[0].lanes // LANES
        kept = np.isin(waves, which)
        lanes = np.searchsorted(which, waves[kept]) * LANES + self.places[0].lanes[kept] % LANES
        places = tuple(place.of_lanes(kept, lanes) for place in self.places)
        data = self.data[:, kept] if self.data.size else self.data
        return replace(self, places=places, data=data)


Pending = deque[Transfer]


@dataclass(slots=True)
class Workgroup:
    """What the waves of a workgroup share, besides its LDS."""

    number: tuple[int, int, int] = (0, 0, 0)
    waves: int = 1
    left: int = sys.maxsize
    """Instructions that its waves may still execute."""
    not_run: int = 0
    """Workgroups of the launch that begin after this one."""
    stores: int = 0
    """Stores and atomic accesses that its waves have issued."""
    parts: list[Waves] = field(default_factory=list)
    """Waves that are not at a barrier."""
    recent: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By wave: how often it has executed each basic block, since few instructions are left."""


class Waves:
    """Waves of a workgroup that are at the same instruction: one call of NumPy executes it for all of them.

    ``v``, ``vi``, ``vf`` are the vector registers [rows, lanes of one wave after the other] as unsigned, signed and
    float; ``s``, ``si``, ``sf`` the scalar ones, those of one wave after the other; ``s64`` and so on pairs of them.
    """

    def __init__(
        self, numbers: Sequence[int], memory: GlobalMemory, lds: Allocation, scratch: Allocation, eager: bool,
        group: Workgroup | None = None, check: AccessCheck | None = None,
    ) -> None:  # fmt: skip
        self.numbers, self.count = np.array(numbers), len(numbers)
        self.group, self.check = group or Workgroup(), check
        self.epoch = 0
        """Barriers that are behind the waves."""
        self.issued = 0
        """Accesses to memory that the waves have issued."""
        self.at = 0
        """Address in the code object of the access that is issued, or that takes place."""
        self.every = np.arange(self.count * LANES)
        self.v: Array = np.full((REGISTER_ROWS, len(self.every)), UNWRITTEN_WORD, np.uint32)
        self.vi, self.vf = self.v.view(np.int32), self.v.view(np.float32)
        self.s: Array = np.full(self.count * SGPRS, UNWRITTEN_WORD, np.uint32)
        self.si, self.sf = self.s.view(np.int32), self.s.view(np.float32)
        self.s64, self.si64, self.sf64 = self.s.view(np.uint64), self.s.view(np.int64), self.s.view(np.float64)
        self.s_by_wave = self.s.reshape(self.count, SGPRS)
        self._bytes = self.s_by_wave.view(np.uint8)
        self.memory, self.lds, self.scratch = memory, lds, scratch
        self.scc, self.pc, self.is_indexing = [0] * self.count, 0, False
        self.targets: list[int] = []
        """Where each wave goes on, after a branch that not all of them take."""
        self.look_at = max(self.group.left - LOOK_AFTER, LOOK_AFTER)
        """Instructions left to the workgroup when the waves are looked at: whether they do the same again and again."""
        self.seen: tuple[int, int, int, bytes, Array] | None = None
        """When they were looked at: instructions left, stores of the workgroup, address, scalar and other registers."""
        self.is_stuck_at = -1
        """Stores of the workgroup when they were found to repeat what they do."""
        self.eager = eager
        """Whether accesses to memory happen at once; else as late as the waits of the kernel allow."""
        self.vm: Pending = deque()
        self.lgkm: Pending = deque()
        self.scalar: Pending = deque()
        """Scalar loads, which count for the same waits as those of the LDS, but complete in any order."""
        self.set_exec(EVERY_LANE)

    def parts(self) -> list[Waves]:
        """Return the waves that go on at different addresses, apart from each other."""
        parts = []
        for target in dict.fromkeys(self.targets):
            which = [wave for wave, own in enumerate(self.targets) if own == target]
            part = Waves(
                self.numbers[which].tolist(), self.memory, self.lds, self.scratch, self.eager, self.group, self.check
            )
            part.epoch, part.pc, part.scc = self.epoch, target, [self.scc[wave] for wave in which]
            part.issued, part.is_indexing = self.issued, self.is_indexing
            part.v[:] = self.v.reshape(REGISTER_ROWS, self.count, LANES)[:, which].reshape(REGISTER_ROWS, -1)
            part.s_by_wave[:] = self.s_by_wave[which]
            part.refresh_exec()
            for own, all_ in ((part.vm, self.vm), (part.lgkm, self.lgkm), (part.scalar, self.scalar)):
                own.extend(transfer.of_waves(which) for transfer in all_)
            parts.append(part)
        return parts

    def repeats(self) -> bool:
        """Return whether the waves are in the state in which they were last looked at, and note it where it is due."""
        left, stores = self.group.left, self.group.stores
        if self.seen is None or self.seen[0] - left > LOOK_AFTER:
            is_due = self.seen is None
            self.seen = (left, stores, self.pc, self._state(), self.v.copy()) if is_due else None
            self.look_at = max(left if is_due else left - LOOK_AFTER, LOOK_AFTER)
            return False
        _, stores_then, pc, state, vectors = self.seen
        is_same = self.pc == pc and self._state() == state and not (self.vm or self.lgkm)
        return is_same and stores == stores_then and bool((self.v == vectors).all())

    def _state(self) -> bytes:
        return self.s.tobytes() + bytes(self.scc)

    def set_exec(self, mask: int | Array | list[int]) -> None:
        """Enable the lanes of a mask, one for all waves or one each."""
        self.s64[EXEC // 2 :: SGPR_PAIRS] = mask
        self.refresh_exec()

    def refresh_exec(self) -> None:
        """Take over what was written to the masks' registers."""
        self.m: Array = self.mask(EXEC)
        self.whole = bool(self.m.all())

    def do_in(self, lanes: Array, step: Step) -> None:
        """Execute a step as if these lanes were enabled."""
        mask, whole = self.m, self.whole
        self.m, self.whole = lanes, bool(lanes.all())
        step(self)
        self.m, self.whole = mask, whole

    def active(self) -> Array:
        """Return the numbers of the lanes that are enabled."""
        return self.every if self.whole else np.flatnonzero(self.m)

    def waves_of(self, lanes: Array) -> Array:
        """Return the numbers of the waves that lanes belong to."""
        return self.numbers[lanes // LANES]

    def mask(self, register: int) -> Array:
        """Return a pair of scalar registers as one truth value a lane."""
        return np.unpackbits(self._bytes[:, 4 * register : 4 * register + 8], bitorder="little").view(bool)

    def set_mask(self, register: int, lanes: Array) -> None:
        """Write one truth value a lane to a pair of scalar registers."""
        self._bytes[:, 4 * register : 4 * register + 8] = np.packbits(lanes, bitorder="little").reshape(-1, 8)
        if register == EXEC:
            self.refresh_exec()

    def spread(self, values: Array) -> Array:
        """Return one value a wave as one a lane, or as one for all where they are the same."""
        if self.count == 1:
            return values
        each = values.tolist()
        return values[:1] if each.count(each[0]) == self.count else np.repeat(values, LANES)

    def issue(self, queue: Pending | None, transfer: Transfer) -> None:
        """Do an access to memory, at the wait for it, or now if none waits."""
        transfer.issue = Issue(self.at, self.epoch, self.issued, not self.vm, not (self.vm or self.lgkm))
        self.issued += 1
        self.group.stores += bool(transfer.data.size)
        if self.eager or queue is None:
            self._complete(transfer)
        else:
            queue.append(transfer)

    def wait(self, vm: int, lgkm: int) -> None:
        """Complete the oldest accesses until no more than these are pending, and no scalar load that may be pending."""
        while len(self.vm) > vm:
            self._complete(self.vm.popleft())
        while len(self.lgkm) > lgkm:
            self._complete(self.lgkm.popleft())
        # While one access is pending, it may be any of these.
        while self.scalar and lgkm == 0:
            self._complete(self.scalar.popleft())

    def _complete(self, transfer: Transfer) -> None:
        self.at = transfer.issue.address
        transfer.complete(self, transfer)
        if self.check is not None:
            self.check.note(self, transfer)

    def write(self, row: int, values: Array, lanes: Array) -> None:
        """Write words [rows, active lanes] to vector registers from ``row`` on."""
        if len(lanes) == len(self.every):
            self.v[row : row + len(values)] = values
        else:
            self.v[row : row + len(values), lanes] = values


Step = Callable[[Waves], None]
"""Executes one instruction."""
