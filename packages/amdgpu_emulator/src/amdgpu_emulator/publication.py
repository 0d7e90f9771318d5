"""What orders the accesses of different workgroups: one releases at agent scope, and another one acquires.

A wave releases by an atomic access, or a store, when its earlier accesses are done and, on gfx942 and gfx950, the cache
was written back (``buffer_wbl2 sc1``). A wave acquires by an atomic access, or a load of that scope, that takes what
was released, and invalidates its cache after that (``buffer_inv sc1``, on gfx90a ``buffer_wbinvl1_vol``). A barrier
passes both on within a workgroup: its waves share the first cache. This is the memory model of LLVM's guide.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amdgpu_emulator.access_check import Record
    from amdgpu_emulator.memory import Allocation

SC0, AGENT_SCOPE = 1, 2
"""Bits of loads, stores and cache instructions: ``sc0`` and ``sc1``. gfx90a has the first one alone."""


class Event(NamedTuple):
    """A record, and the wave of which it is meant."""

    record: Record
    wave: int


@dataclass(frozen=True, slots=True)
class Fence:
    """A cache was written back or invalidated."""

    writes_back: bool
    workgroup: tuple[int, int, int]
    waves: frozenset[int]
    epochs: tuple[int, int]
    """Of its issue and of its end."""
    number: int
    """Accesses that its waves had issued before."""
    order: int
    """Accesses of the launch that were done before."""


class Handover:
    """What the waves of one workgroup hand over to each other by flags, in the LDS or in memory that they share.

    A wave waits for a flag in a loop (module ``spins``). What another one has written there hands over all of its
    accesses that were done before. Waves of a workgroup share the first cache: nothing is written back or invalidated.
    """

    def __init__(self, memories: Sequence[Sequence[Record]]) -> None:
        """``memories``: what the workgroup did, in each allocation."""
        self._acquired: dict[int, list[tuple[int, dict[int, int]]]] = defaultdict(list)
        """By wave: the numbers of its acquires, and how far it then knows each wave."""
        flags = [{at for one in records if one.is_spin for at in one.at.tolist()} for records in memories]
        released: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        events = [
            (record.order, memory, record)
            for memory, records in enumerate(memories)
            if flags[memory]
            for record in records
        ]
        for _, memory, record in sorted(events, key=lambda event: event[0]):
            for at, wave in sorted(set(zip(record.at.tolist(), record.waves.tolist(), strict=True))):
                if at in flags[memory]:
                    self._step(released, (memory, at), record, wave)

    def _step(
        self, released: dict[tuple[int, int], dict[int, int]], flag: tuple[int, int], record: Record, wave: int
    ) -> None:
        known = self._acquired[wave][-1][1] if self._acquired[wave] else {}
        if record.is_spin or record.what.startswith("atomic"):
            known = _joined(known, released[flag])
            self._acquired[wave].append((record.number, known))
        if record.what != "load" and record.what != "atomic load" and record.is_quiet:
            own = known | {wave: record.number}
            # A store replaces what was there, an atomic access adds to it.
            released[flag] = _joined(released[flag], own) if record.what == "atomic" else own

    def orders(self, one: Event, other: Event) -> bool:
        """Return whether one of two accesses is behind the other one."""
        return self._is_behind(one, other) or self._is_behind(other, one)

    def _is_behind(self, first: Event, second: Event) -> bool:
        rows = self._acquired[second.wave]
        place = bisect.bisect_left(rows, second.record.number, key=itemgetter(0)) - 1
        return place >= 0 and rows[place][1].get(first.wave, -1) >= first.record.number

    def is_flag(self, one: Event, other: Event) -> bool:
        """Return whether one of two accesses waits in a loop for what the other one stores."""
        return any(
            waiting.record.is_spin and writing.record.what != "load"
            for waiting, writing in ((one, other), (other, one))
        )


def _joined(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return one | {wave: max(number, one.get(wave, -1)) for wave, number in other.items()}


class Publication:
    """What the workgroups of a launch have published to each other."""

    def __init__(
        self, records: Mapping[Allocation, Sequence[Record]], fences: Sequence[Fence], writes_back: bool
    ) -> None:
        """``writes_back``: whether a release has to write back a cache; then stores have a scope, too."""
        self._writes_back = writes_back
        self._fences: dict[tuple[int, int, int], list[Fence]] = defaultdict(list)
        for fence in fences:
            self._fences[fence.workgroup].append(fence)
        self._passed: dict[tuple[int, int, int], list[tuple[Event, Event]]] = defaultdict(list)
        """By the workgroup that releases."""
        self._passed_on: dict[Event, list[tuple[Event, Event]]] = {}
        """By what acquires before they are released."""
        # Nothing is acquired where nothing is invalidated.
        if any(not fence.writes_back for fence in fences):
            for pair in (pair for own in records.values() for pair in self._passed_in(own)):
                self._passed[pair[0].record.workgroup].append(pair)

    def orders(self, one: Event, other: Event) -> bool:
        """Return whether one of two accesses of different workgroups is behind the other one."""
        # Workgroups run one after the other, and none acquires what is released later.
        first, second = sorted((one, other), key=lambda event: event.record.order)
        reached = [pair for pair in self._passed[first.record.workgroup] if self._is_released(first, pair[0])]
        seen = set(reached)
        for _, acquire in reached:
            if self._is_acquired(acquire, second):
                return True
            # The list grows.
            new = [pair for pair in self._behind(acquire) if pair not in seen]
            reached += new
            seen.update(new)
        return False

    def _behind(self, acquire: Event) -> list[tuple[Event, Event]]:
        """Return what its workgroup releases after an acquire: what was acquired is passed on."""
        if acquire not in self._passed_on:
            own = self._passed[acquire.record.workgroup]
            self._passed_on[acquire] = [pair for pair in own if self._is_acquired(acquire, pair[0])]
        return self._passed_on[acquire]

    def _passed_in(self, records: Sequence[Record]) -> list[tuple[Event, Event]]:
        """Return each release with an acquire that has read from it, or from what others made of its number."""
        read = {at for one in records if one.what in ("atomic", "atomic load") for at in one.at.tolist()}
        published: dict[int, list[Event]] = defaultdict(list)
        pairs: dict[tuple[object, ...], tuple[Event, Event]] = {}
        for record in records:
            if record.what == "load" or (record.what == "store" and self._writes_back):
                continue
            for at, wave in zip(record.at.tolist(), record.waves.tolist(), strict=True):
                if at not in read:
                    continue
                event = Event(record, wave)
                for release in published[at] if record.what in ("atomic", "atomic load") else ():
                    if release.record.workgroup != record.workgroup:
                        key = id(release.record), release.wave, record.workgroup, wave
                        pairs.setdefault(key, (release, event))
                if record.what in ("store", "atomic store"):
                    published[at] = []
                if record.what != "atomic load" and record.is_settled:
                    published[at].append(event)
        return list(pairs.values())

    def _is_released(self, access: Event, release: Event) -> bool:
        (one, wave), (record, other) = access, release
        if one.workgroup != record.workgroup:
            return False
        if one is record and wave == other:
            return True
        if not self._writes_back:
            return (wave == other and one.number < record.number) or one.epochs[0] < record.epochs[0]
        return any(
            ((wave == own and one.number < fence.number) or one.epochs[0] < fence.epochs[0])
            and ((other == own and fence.number < record.number) or fence.epochs[1] < record.epochs[0])
            for fence in self._fences[one.workgroup]
            if fence.writes_back
            for own in fence.waves
        )

    def _is_acquired(self, acquire: Event, access: Event) -> bool:
        (record, other), (one, wave) = acquire, access
        if one.workgroup != record.workgroup:
            return False
        return any(
            ((other == own and record.order < fence.order) or record.epochs[1] < fence.epochs[0])
            and ((wave == own and fence.number <= one.number) or fence.epochs[1] < one.epochs[0])
            for fence in self._fences[one.workgroup]
            if not fence.writes_back
            for own in fence.waves
        )
