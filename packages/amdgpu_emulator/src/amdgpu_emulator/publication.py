"""What orders the accesses of waves beside barriers: one releases what it has done, and another one acquires it.

Between workgroups this happens at agent scope. A wave releases by an atomic access, or a store, when its earlier
accesses are done and, on gfx942 and gfx950, the cache was written back (``buffer_wbl2 sc1``). A wave acquires by an
atomic access, or a load of that scope, that takes what was released, and invalidates its cache after that (``buffer_inv
sc1``, on gfx90a ``buffer_wbinvl1_vol``). A barrier passes both on within a workgroup: its waves share the first cache.
This is the memory model of LLVM's guide.

Within a workgroup, a wave waits for a flag in a loop (module ``spins``), in the LDS or in memory. What another one has
written there hands over all that it has done. Nothing is written back or invalidated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amdgpu_emulator.access_check import Record

SC0, AGENT_SCOPE = 1, 2
"""Bits of loads, stores and cache instructions: ``sc0`` and ``sc1``. gfx90a has the first one alone."""
WRITES_BACK, INVALIDATES = "write back", "invalidate"
"""What an instruction does with the cache, as the kind of a record."""

_READS = ("atomic", "atomic load")


class Event(NamedTuple):
    """A record, and the wave of which it is meant."""

    record: Record
    wave: int

    def is_before(self, other: Event) -> bool:
        """Return whether the program of a wave, or a barrier of its workgroup, orders two events."""
        one, later = self.record, other.record
        # A barrier does not wait until a cache is written back; accesses keep their order without that.
        epoch = one.issue.epoch if one.size else one.last_epoch
        is_same = self.wave == other.wave and one.issue.number < later.issue.number
        return one.workgroup == later.workgroup and (is_same or epoch < later.issue.epoch)


class Passed(NamedTuple):
    """A release, and what acquires it."""

    release: Event
    acquire: Event

    @property
    def is_near(self) -> bool:
        """Whether both are in one workgroup."""
        return self.release.record.workgroup == self.acquire.record.workgroup


class Publication:
    """What the waves of a launch have published to each other."""

    def __init__(self, writes_back: bool) -> None:
        """``writes_back``: whether a release has to write back a cache; then stores have a scope, too."""
        self._writes_back = writes_back
        self._fences: dict[tuple[object, str], list[Event]] = defaultdict(list)
        """By workgroup and kind."""
        self._passed: dict[tuple[int, int, int], list[Passed]] = defaultdict(list)
        """By the workgroup that releases."""
        self._passed_on: dict[Event, list[Passed]] = {}
        """By what acquires before they are released."""

    def add_fence(self, record: Record) -> None:
        """Note that a cache was written back or invalidated."""
        self._fences[record.workgroup, record.what] += [Event(record, wave) for wave in record.waves.tolist()]

    def add_flags(self, records: Sequence[Record]) -> None:
        """Take over what the waves of a workgroup hand over to each other in one allocation."""
        flags = {at for one in records if one.is_spin for at in one.at.tolist()}
        if flags:
            writes = [one for one in records if one.is_spin or one.what != "load"]
            self._add(writes, flags, True)

    def add(self, records: Sequence[Record]) -> None:
        """Take over what the workgroups have published to each other in one allocation."""
        # Nothing is acquired where nothing is invalidated.
        if any(what == INVALIDATES for _, what in self._fences):
            plain = ("load", "store") if self._writes_back else ("load",)
            scoped = [one for one in records if one.what not in plain]
            self._add(scoped, {at for one in scoped if one.what in _READS for at in one.at.tolist()}, False)

    def _add(self, records: Sequence[Record], places: set[int], is_near: bool) -> None:
        """Note each release with what acquires it, or what others made of its number."""
        published: dict[int, list[Event]] = defaultdict(list)
        seen: set[tuple[object, ...]] = set()
        for record in records:
            for at, wave in zip(record.at.tolist(), record.waves.tolist(), strict=True):
                if at not in places:
                    continue
                event = Event(record, wave)
                for release in published[at] if record.is_spin or record.what in _READS else ():
                    key = id(release.record), release.wave, record.workgroup, wave
                    pair = Passed(release, event)
                    if pair.is_near == is_near and (release.wave != wave or not is_near) and key not in seen:
                        seen.add(key)
                        self._passed[release.record.workgroup].append(pair)
                if record.what in ("store", "atomic store"):
                    published[at] = []
                if "load" not in record.what and (record.issue.is_quiet if is_near else record.issue.is_settled):
                    published[at].append(event)

    def orders(self, one: Event, other: Event) -> bool:
        """Return whether one of two accesses is behind the other one."""
        return self._is_behind(one, other) or self._is_behind(other, one)

    def _is_behind(self, first: Event, second: Event) -> bool:
        reached = [pair for pair in self._passed[first.record.workgroup] if self._is_released(first, pair)]
        seen = set(reached)
        for pair in reached:
            if self._is_acquired(pair, second):
                return True
            # The list grows.
            new = [behind for behind in self._behind(pair) if behind not in seen]
            reached += new
            seen.update(new)
        return False

    def _behind(self, pair: Passed) -> list[Passed]:
        """Return what its workgroup releases after an acquire: what was acquired is passed on."""
        if pair.acquire not in self._passed_on:
            own = self._passed[pair.acquire.record.workgroup]
            self._passed_on[pair.acquire] = [other for other in own if self._is_acquired(pair, other.release)]
        return self._passed_on[pair.acquire]

    def _is_released(self, access: Event, pair: Passed) -> bool:
        if access == pair.release:
            return True
        if pair.is_near or not self._writes_back:
            return access.is_before(pair.release)
        fences = self._fences[access.record.workgroup, WRITES_BACK]
        return any(access.is_before(one) and one.is_before(pair.release) for one in fences)

    def _is_acquired(self, pair: Passed, access: Event) -> bool:
        acquire = pair.acquire
        if pair.is_near:
            return acquire.is_before(access)
        return any(
            acquire.record.order < one.record.order and acquire.is_before(one) and one.is_before(access)
            for one in self._fences[acquire.record.workgroup, INVALIDATES]
        )
