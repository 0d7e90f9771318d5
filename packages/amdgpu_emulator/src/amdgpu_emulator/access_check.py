"""What is wrong with the accesses of one launch: data races, and loads of bytes that nothing has written.

Two accesses race if two waves touch a byte, at least one of them writes, and nothing orders the two. A barrier orders
the waves of a workgroup. So the accesses of a wave belong to *epochs*, which its barriers separate. An access takes
place at any time between its issue and the wait that completes it, and belongs to all epochs in between. Two accesses
of one workgroup race if they share an epoch, two of different workgroups unless one of them has published (module
``publication``). Atomic accesses do not race with each other. One order of the waves is enough, since what decides are
epochs and not the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from amdgpu_emulator.publication import AGENT_SCOPE, INVALIDATES, SC0, WRITES_BACK, Event, Publication

if TYPE_CHECKING:
    from amdgpu_emulator.memory import Allocation, Array, Touch
    from amdgpu_emulator.wave import Issue, Transfer, Waves

CHECKS = ("races", "memory")
"""What can be looked for."""
_WAVE_NUMBERS = 1024
"""More than a workgroup has."""
MOST_FINDINGS = 16
"""Different pairs of instructions, and different loads, that a launch reports."""


@dataclass(frozen=True)
class Access:
    """What one instruction of a wave does with memory."""

    workgroup: tuple[int, int, int]
    wave: int
    address: int
    """Of the instruction, in the code object."""
    what: str
    """``load``, ``store``, ``atomic``, or ``atomic load`` and ``atomic store`` of agent scope."""
    source: str = ""
    """File and line, or empty."""

    def __str__(self) -> str:
        """The access in words."""
        source = f" ({self.source})" if self.source else ""
        return f"{self.what} at {self.address:#x}{source} by wave {self.wave} of workgroup {self.workgroup}"


@dataclass(frozen=True)
class _Finding:
    kernel: str
    memory: str
    """The allocation."""
    offset: int
    """Of the first byte: that both accesses touch, or of the first lane."""
    size: int
    """Bytes from there on."""


@dataclass(frozen=True)
class Race(_Finding):
    """Two accesses to the same bytes that nothing orders."""

    first: Access
    second: Access

    def __str__(self) -> str:
        """The race in words."""
        what = f"race in {self.kernel}: bytes {self.offset} to {self.offset + self.size - 1} of {self.memory}"
        return f"{what}, {self.first} and {self.second}"


@dataclass(frozen=True)
class UnwrittenLoad(_Finding):
    """A load of bytes that nothing has written."""

    access: Access

    def __str__(self) -> str:
        """The load in words."""
        what = f"{self.size} bytes at offset {self.offset} of {self.memory}"
        return f"{self.kernel}: {self.access} takes {what} that nothing has written"


@dataclass(slots=True, eq=False)
class Record:
    """What one instruction of some waves touched in one allocation."""

    workgroup: tuple[int, int, int]
    issue: Issue
    last_epoch: int
    """Barriers behind the waves when it was done."""
    order: int
    """Accesses of the launch that were done before."""
    what: str
    """As ``Access`` has it, or what becomes of the cache."""
    waves: Array
    """Of each lane."""
    at: Array
    """Offset of each lane."""
    size: int = 0
    swaps: bool = False
    """Whether it stores only where memory is as expected."""
    is_spin: bool = False
    """Whether a loop waits for what it reads."""

    def units(self, unit: int) -> tuple[Array, Array]:
        """Return the numbers of the units of so many bytes that it touched, and the wave of each."""
        return (self.at[:, None] // unit + np.arange(self.size // unit)).ravel(), self.waves.repeat(self.size // unit)

    def end(self, offset: int) -> int:
        """Return the offset behind the bytes of a lane that touched the one at an offset."""
        return int(self.at[(self.at <= offset) & (offset < self.at + self.size)].max()) + self.size

    def races_with(self, other: Record) -> bool:
        """Return whether nothing orders accesses of two waves to the same byte."""
        begin, end = max(self.issue.epoch, other.issue.epoch), min(self.last_epoch, other.last_epoch)
        kinds = {self.what, other.what}
        is_harmless = kinds <= {"load", "atomic load"} or kinds <= {"atomic", "atomic load", "atomic store"}
        return not is_harmless and (self.workgroup != other.workgroup or begin <= end)


class AccessCheck:
    """Watches the accesses of a launch."""

    def __init__(
        self, kernel: str, source: Callable[[int], str], races: bool = True, memory: bool = True, arch: str = ""
    ) -> None:
        self._kernel, self._source = kernel, source
        """File and line of an address."""
        # There a cache is in front of the memory that all workgroups share.
        self._writes_back = arch != "gfx90a"
        self._agent_bits = AGENT_SCOPE if self._writes_back else SC0
        self._published = Publication(self._writes_back)
        self._order = 0
        self.touched: list[Touch] = []
        """What the access touches that takes place at this moment; allocations append to it."""
        self._wants_races, self._wants_memory = races, memory
        self._unwritten: dict[tuple[str, int], UnwrittenLoad] = {}
        self.spins: set[int] = set()
        """Addresses of what waits in a loop for what it reads; the machine code adds to them."""
        self._local: list[Record] = []
        self._global: dict[Allocation, list[Record]] = defaultdict(list)
        self._races: dict[tuple[object, ...], Race] = {}

    def note(self, w: Waves, transfer: Transfer) -> None:
        """Keep what an access has touched that was just completed."""
        issue, workgroup, epoch = transfer.issue, w.group.number, w.epoch
        if transfer.atomic in (WRITES_BACK, INVALIDATES) and transfer.scope & AGENT_SCOPE:
            nowhere = w.every[:0]
            self._published.add_fence(Record(workgroup, issue, epoch, self._order, transfer.atomic, w.numbers, nowhere))
        for allocation, lanes, at, size, what in self.touched:
            waves, kind = w.waves_of(lanes), "atomic" if transfer.atomic else what.replace("unwritten", "load")
            if transfer.scope & self._agent_bits and (kind == "load" or (kind == "store" and self._writes_back)):
                kind = f"atomic {kind}"
            if what == "unwritten":
                key = allocation.name, issue.address
                if self._wants_memory and key not in self._unwritten:
                    access = self._access(workgroup, int(waves[0]), issue.address, kind)
                    self._unwritten[key] = UnwrittenLoad(self._kernel, allocation.name, int(at[0]), size, access)
            elif self._wants_races and allocation is not w.scratch:
                swaps = transfer.atomic.startswith("CMPSWAP")
                record = Record(workgroup, issue, epoch, self._order, kind, waves, at, size, swaps)
                self._order += 1
                (self._local if allocation is w.lds else self._global[allocation]).append(record)
        self.touched.clear()

    def _access(self, workgroup: tuple[int, int, int], wave: int, address: int, what: str) -> Access:
        return Access(workgroup, wave, address, what, self._source(address))

    def unwritten(self) -> list[UnwrittenLoad]:
        """Return the loads of bytes that nothing has written; at most one for each instruction."""
        return list(self._unwritten.values())[:MOST_FINDINGS]

    def end_workgroup(self, lds: Allocation, number: tuple[int, int, int]) -> None:
        """Look for races in the LDS of a workgroup that has ended."""
        if self.spins:
            for memory in (self._local, *self._global.values()):
                own = [one for one in memory if one.workgroup == number]
                for record in own:
                    # Only now it is known which loops wait.
                    record.is_spin = record.issue.address in self.spins and record.what != "store"
                self._published.add_flags(own)
        by_epoch: dict[int, list[Record]] = defaultdict(list)
        for record in self._local:
            for epoch in range(record.issue.epoch, record.last_epoch + 1):
                by_epoch[epoch].append(record)
        for own in by_epoch.values():
            self._report(lds, own)
        self._local.clear()

    def races(self) -> list[Race]:
        """Return all races of the launch, those of the LDS first; at most one for each pair of instructions."""
        for records in self._global.values():
            self._published.add(records)
        for allocation, records in self._global.items():
            self._report(allocation, _without_expectations(records))
        self._global.clear()
        return list(self._races.values())[:MOST_FINDINGS]

    def _report(self, allocation: Allocation, records: list[Record]) -> None:
        """Note a race for each pair of instructions that touch the same byte, and that nothing orders."""
        places, unit = _contested(records, len(allocation.u8))
        touching: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, record in enumerate(records if len(places) else ()):
            units, waves = record.units(unit)
            chosen = np.isin(units, places)
            for place, wave in sorted(set(zip(units[chosen].tolist(), waves[chosen].tolist(), strict=True))):
                touching[place].append((number, wave))
        seen: set[tuple[tuple[int, int], ...]] = set()
        for place, accesses in sorted(touching.items()):
            # The same accesses meet at many places.
            if (key := tuple(accesses)) in seen:
                continue
            seen.add(key)
            for (one, first), (other, second) in combinations(accesses, 2):
                pair = records[one], records[other]
                if not pair[0].races_with(pair[1]) or (pair[0].workgroup, first) == (pair[1].workgroup, second):
                    continue
                if self._is_flag(*pair) or self._is_flag(*pair[::-1]):
                    continue
                if self._published.orders(Event(pair[0], first), Event(pair[1], second)):
                    continue
                self._note_race(allocation, place * unit, pair, (first, second))

    def _is_flag(self, one: Record, other: Record) -> bool:
        """Return whether one access stores what the other one waits for in a loop, or reads atomically.

        Without a cache to write back, atomic stores of agent scope look like all others; they are those of one lane.
        """
        if other.is_spin and one.what != "load" and one.workgroup == other.workgroup:
            return True
        if self._writes_back or one.what != "store" or len(one.at) > 1:
            return False
        return other.what == "atomic load" or (other.what == "atomic" and one.issue.is_settled)

    def _note_race(
        self, allocation: Allocation, offset: int, records: tuple[Record, Record], waves: tuple[int, int]
    ) -> None:
        key = (allocation.name, *sorted((record.issue.address, record.what) for record in records))
        if key not in self._races:
            size = min(record.end(offset) for record in records) - offset
            first, second = (
                self._access(record.workgroup, wave, record.issue.address, record.what)
                for record, wave in zip(records, waves, strict=True)
            )
            self._races[key] = Race(self._kernel, allocation.name, offset, size, first, second)


def _without_expectations(records: list[Record]) -> list[Record]:
    """Return the records without loads of what their wave swaps later, which only say what it expects (bf16 sums)."""
    if not any(record.swaps for record in records):
        return records
    kept, swapped = [], defaultdict[tuple[object, int], set[int]](set)
    for record in reversed(records):
        places, waves = record.units(1)
        keys = [(record.workgroup, wave) for wave in waves.tolist()]
        if record.swaps:
            for key, place in zip(keys, places.tolist(), strict=True):
                swapped[key].add(place)
        elif record.what == "load":
            is_expected = [place in swapped[key] for key, place in zip(keys, places.tolist(), strict=True)]
            lanes = ~np.array(is_expected).reshape(-1, record.size).all(axis=1)
            record = replace(record, waves=record.waves[lanes], at=record.at[lanes])
        kept.append(record)
    return kept[::-1]


def _contested(records: Sequence[Record], size: int) -> tuple[Array, int]:
    """Return the units that several waves touch and one of them writes, whatever their epochs, and the bytes of a unit.

    Atomic accesses are writes to all but each other.
    """
    if all(record.what == "load" for record in records):
        return np.empty(0, np.int64), 1
    bits = np.bitwise_or.reduce(np.concatenate([record.at for record in records]))
    unit = 1 if bits & 3 or any(record.size & 3 for record in records) else 4
    groups = {record.workgroup: number for number, record in enumerate(records)}
    touched = {what: np.zeros(-(-size // unit), bool) for what in ("load", "atomic", "store", "several")}
    parts = [record.units(unit) for record in records]
    for record, (places, _) in zip(records, parts, strict=True):
        touched[record.what.partition(" ")[0]][places] = True
    units, waves = np.concatenate([places for places, _ in parts]), np.concatenate([own for _, own in parts])
    waves += np.repeat([_WAVE_NUMBERS * groups[one.workgroup] for one in records], [len(own) for _, own in parts])
    # The last wave that touches a unit is its owner, and every other one differs from it.
    owner = np.empty(-(-size // unit), np.int64)
    owner[units] = waves
    touched["several"][units[owner[units] != waves]] = True
    is_contested = touched["several"] & (touched["store"] | touched["atomic"] & touched["load"])
    return np.flatnonzero(is_contested), unit
