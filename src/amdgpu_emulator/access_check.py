"""What is wrong with the accesses of one launch: data races, and loads of bytes that nothing has written.

Two accesses race if two waves touch a byte, at least one of them writes, and nothing orders the two. A barrier orders
the waves of a workgroup. So the accesses of a wave belong to *epochs*, which its barriers separate. An access takes
place at any time between its issue and the wait that completes it, and belongs to all epochs in between. Two accesses
of one workgroup race if they share an epoch, two of different workgroups in any case. Atomic accesses do not race with
each other. One order of the waves is enough, since what decides are epochs and not the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from amdgpu_emulator.memory import Allocation, Array, Touch
    from amdgpu_emulator.wave import Wave

KINDS = ("races", "memory")
"""What can be looked for."""
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
    """``load``, ``store`` or ``atomic``."""
    source: str = ""
    """File and line, or empty."""

    @property
    def of_wave(self) -> tuple[object, ...]:
        """Workgroup and wave."""
        return (*self.workgroup, self.wave)

    def __str__(self) -> str:
        """The access in words."""
        source = f" ({self.source})" if self.source else ""
        return f"{self.what} at {self.address:#x}{source} by wave {self.wave} of workgroup {self.workgroup}"


@dataclass(frozen=True)
class Race:
    """Two accesses to the same bytes that nothing orders."""

    memory: str
    """The allocation."""
    offset: int
    """Of the first byte that both touch."""
    first: Access
    second: Access

    def __str__(self) -> str:
        """The race in words."""
        return f"race at byte {self.offset} of {self.memory}: {self.first} and {self.second}"


@dataclass(frozen=True)
class UnwrittenLoad:
    """A load of bytes that nothing has written."""

    memory: str
    """The allocation."""
    offset: int
    """Of the first lane's bytes."""
    size: int
    """Bytes of a lane."""
    access: Access

    def __str__(self) -> str:
        """The load in words."""
        what = f"{self.size} bytes at offset {self.offset} of {self.memory}"
        return f"{self.access} takes {what} that nothing has written"


@dataclass(slots=True)
class _Record:
    """What one instruction of a wave touched in one allocation."""

    access: Access
    epochs: tuple[int, int]
    """The first and the last one."""
    at: Array
    size: int

    def bytes(self) -> Array:
        """Offsets of all bytes."""
        return (self.at[:, None] + np.arange(self.size)).ravel()

    def races_with(self, other: _Record) -> bool:
        """Whether nothing orders the two, if they touch the same byte."""
        own, its = self.access, other.access
        if (own.workgroup, own.wave) == (its.workgroup, its.wave) or own.what == its.what == "atomic":
            return False
        begin, end = max(self.epochs[0], other.epochs[0]), min(self.epochs[1], other.epochs[1])
        return own.workgroup != its.workgroup or begin <= end


class AccessCheck:
    """Watches the accesses of a launch."""

    def __init__(self, source: Callable[[int], str], races: bool = True, memory: bool = True) -> None:
        self._source = source
        """File and line of an address."""
        self.touched: list[Touch] = []
        """What the access touches that takes place at this moment; allocations append to it."""
        self._wants_races, self._wants_memory = races, memory
        self._unwritten: dict[tuple[str, int], UnwrittenLoad] = {}
        self._local: list[tuple[Allocation, _Record]] = []
        self._global: dict[Allocation, list[_Record]] = defaultdict(list)
        self._races: dict[tuple[object, ...], Race] = {}

    def watch(self, w: Wave, access: Callable[[], None], is_atomic: bool) -> Callable[[], None]:
        """``access``, and a record of it: from the epoch of now to that of its completion."""
        issued, address = w.epoch, w.at

        def watched() -> None:
            begin = len(self.touched)
            access()
            touched, self.touched[begin:] = self.touched[begin:], []
            for allocation, at, size, what in touched:
                access_ = Access(w.group.number, w.number, address, "atomic" if is_atomic else what)
                if what == "unwritten":
                    self._note_unwritten(allocation, access_, int(at[0]), size)
                    continue
                if not self._wants_races:
                    continue
                record = _Record(access_, (issued, w.epoch), at, size)
                if allocation is w.lds:
                    self._local.append((allocation, record))
                elif allocation is not w.scratch:
                    self._global[allocation].append(record)

        return watched

    def _note_unwritten(self, allocation: Allocation, access: Access, offset: int, size: int) -> None:
        if self._wants_memory:
            what = "atomic" if access.what == "atomic" else "load"
            access = replace(access, what=what, source=self._source(access.address))
            self._unwritten.setdefault(
                (allocation.name, access.address), UnwrittenLoad(allocation.name, offset, size, access)
            )

    def unwritten(self) -> list[UnwrittenLoad]:
        """Loads of bytes that nothing has written; at most one for each instruction."""
        return list(self._unwritten.values())[:MOST_FINDINGS]

    def end_workgroup(self) -> None:
        """Look for races in the LDS of a workgroup that has ended."""
        if self._local:
            allocation = self._local[0][0]
            self._find_local(allocation, [record for _, record in self._local])
            self._local.clear()

    def races(self) -> list[Race]:
        """All races of the launch, those of the LDS first; at most one for each pair of instructions."""
        for allocation, records in self._global.items():
            if any(record.access.what != "load" for record in records):
                self._find_global(allocation, records)
        self._global.clear()
        return list(self._races.values())[:MOST_FINDINGS]

    def _find_local(self, lds: Allocation, records: list[_Record]) -> None:
        by_epoch: dict[int, list[_Record]] = defaultdict(list)
        for record in records:
            for epoch in range(record.epochs[0], record.epochs[1] + 1):
                by_epoch[epoch].append(record)
        for own in by_epoch.values():
            # One bit per wave that stores to, or loads from, each byte.
            stores, loads = (np.zeros(len(lds.u8), np.uint32) for _ in range(2))
            for record in own:
                mask = loads if record.access.what == "load" else stores
                mask[record.bytes()] |= np.uint32(1 << record.access.wave)
            by_several = stores & (stores - np.uint32(1)) != 0
            by_another = (stores != 0) & (loads & ~stores != 0)
            self._report(lds, own, np.flatnonzero(by_several | by_another))

    def _find_global(self, allocation: Allocation, records: list[_Record]) -> None:
        # One more than the number of the wave that has stored to each byte; what several waves touch, one of them with
        # a store, may be a race.
        owner, shared = np.zeros(len(allocation.u8), np.int32), np.zeros(len(allocation.u8), bool)
        waves: dict[tuple[object, ...], int] = {}
        for record in sorted(records, key=lambda record: record.access.what == "load"):
            own, wave = record.bytes(), waves.setdefault(record.access.of_wave, len(waves) + 1)
            before = owner[own]
            shared[own[(before != 0) & (before != wave)]] = True
            if record.access.what != "load":
                owner[own] = wave
        if not shared.any():
            return
        by_byte: dict[int, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            own = record.bytes()
            for place in own[shared[own]].tolist():
                by_byte[place].append(number)
        seen: set[tuple[int, ...]] = set()
        for place, numbers in by_byte.items():
            if (key := tuple(numbers)) not in seen:
                seen.add(key)
                self._report(allocation, [records[number] for number in numbers], np.array([place]))

    def _report(self, allocation: Allocation, records: Iterable[_Record], places: Array) -> None:
        """Note a race for each pair of instructions among ``records`` that touch one of ``places``."""
        remaining = places
        while len(remaining):
            offset = int(remaining[0])
            own = [record for record in records if _touches(record, offset)]
            for pair in _pairs(own):
                both = [replace(one.access, source=self._source(one.access.address)) for one in pair]
                key = (allocation.name, *sorted((one.address, one.what) for one in both))
                self._races.setdefault(key, Race(allocation.name, offset, *both))
            # The same pairs of instructions race at many bytes.
            remaining = remaining[~np.isin(remaining, np.concatenate([record.bytes() for record in own]))]


def _pairs(records: list[_Record]) -> Iterator[tuple[_Record, _Record]]:
    for number, first in enumerate(records):
        for second in records[number + 1 :]:
            if (first.access.what, second.access.what) != ("load", "load") and first.races_with(second):
                yield first, second


def _touches(record: _Record, offset: int) -> bool:
    return bool(((record.at <= offset) & (offset < record.at + record.size)).any())
