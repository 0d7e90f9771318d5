"""Memory as kernels see it: LDS and scratch of a workgroup, and allocations of global memory."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdgpu_emulator.faults import MemoryFault, UnsupportedInstruction

Array = NDArray[Any]
WORD_BYTES = 4
SHARED_BASE, PRIVATE_BASE, _HIDDEN_BASE = 1 << 48, 2 << 48, 3 << 48
"""Where the LDS and the memory of a lane lie for pointers to any memory; and what a hidden argument points to."""
_HIDDEN_STRIDE = 1 << 32
Touch = tuple["Allocation", Array, Array, int, str]
"""Allocation, numbers of lanes, offset of each, bytes of each, and ``load``, ``store``, or ``unwritten``: a load of
bytes that nothing has written."""
_OFFSETS = {count: np.arange(count)[:, None] for count in range(1, 65)}
_ALL_WRITTEN = {size: np.iinfo(f"u{size}").max for size in (1, 2, 4)}


def _views(content: Array) -> dict[int, Array]:
    """Return bytes as numbers of one, two and four bytes."""
    return {size: content[: len(content) // size * size].view(f"u{size}") for size in (1, 2, 4)}


class Allocation:
    """Bytes in one piece, read and written by many lanes at once; offsets are int64, one per lane.

    Numbers of ``lanes`` are for those who note accesses.
    """

    def __init__(self, content: Array, name: str, is_written: bool = True) -> None:
        self.u8, self.name = content, name
        self.touched: list[Touch] | None = None
        """Where accesses are noted; None: nowhere."""
        self._is_writable = content.flags.writeable
        self._views = _views(content)
        # One byte each, 255 once it is written.
        self._written = None if is_written else _views(np.zeros(len(content), np.uint8))

    def load(self, at: Array, size: int, lanes: Array) -> Array:
        """Read ``size`` bytes per lane: uint32 [words, lanes]; less than a word becomes one with zeros above."""
        unit, places = self._units(at, size, lanes)
        if self.touched is not None:
            self.touched.append((self, lanes, at, size, "load"))
            if self._written is not None:
                is_written = self._written[unit][places] == _ALL_WRITTEN[unit]
                if not is_written.all():
                    missing = ~is_written.all(axis=0)
                    self.touched.append((self, lanes[missing], at[missing], size, "unwritten"))
        values = self._views[unit][places]
        if unit == WORD_BYTES or len(values) == 1:
            return values.astype(np.uint32, copy=False)
        bytes_ = np.zeros((len(at), -(-size // WORD_BYTES) * WORD_BYTES), np.uint8)
        bytes_[:, :size] = values.T
        return bytes_.view(np.uint32).T

    def store(self, at: Array, size: int, values: Array, lanes: Array) -> None:
        """Write the lowest ``size`` bytes of words [words, lanes]; of lanes at the same place the last one stays."""
        if not self._is_writable and len(at):
            raise MemoryFault(
                f"a store of {size} bytes at offset {at[0]} of {self.name}, which is read-only", int(lanes[0])
            )
        unit, places = self._units(at, size, lanes)
        if self.touched is not None:
            self.touched.append((self, lanes, at, size, "store"))
        if len(places) > len(values):
            values = np.ascontiguousarray(values.T).view(np.uint8)[:, :size].T
        self._views[unit][places] = values.astype(f"u{unit}", copy=False)
        if self._written is not None:
            self._written[unit][places] = _ALL_WRITTEN[unit]

    def mark_written(self, begin: int, size: int) -> None:
        """Take bytes as written by the host."""
        if self._written is not None:
            self._written[1][begin : begin + size] = 255

    def _units(self, at: Array, size: int, lanes: Array) -> tuple[int, Array]:
        """Return the bytes of a unit, and the units [units of a lane, lanes]; ``MemoryFault`` if one is outside."""
        bits, unit = int(np.bitwise_or.reduce(at)), min(size, WORD_BYTES)
        # No offset is larger than all bits together.
        if not 0 <= bits <= len(self.u8) - size and len(at) and not (bits >= 0 and at.max() + size <= len(self.u8)):
            place = int(np.flatnonzero((at < 0) | (at + size > len(self.u8)))[0])
            what = f"{size} bytes at {int(at[place])} are outside of {self.name}, which has {len(self.u8)} bytes"
            raise MemoryFault(what, int(lanes[place]))
        unit = unit if not bits & unit - 1 else 1
        return unit, at // unit + _OFFSETS[size // unit]


class GlobalMemory:
    """Allocations by their addresses; an access outside of them is a fault, as on a GPU."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: dict[int, Allocation] = {}
        self._hidden: list[str] = []
        self.clock = itertools.count()
        """There is no time: it counts how often a kernel has read it."""

    def map(self, address: int, content: Array, name: str, is_written: bool = True) -> None:
        """Let kernels read and write an array of bytes at an address; ``name`` is for the message of a fault.

        Not ``is_written``: what a kernel reads of it before something has written it is reported.
        """
        self.place(address, Allocation(content, name, is_written))

    def place(self, address: int, allocation: Allocation) -> None:
        """Let kernels access an allocation at an address."""
        bisect.insort(self._bases, address)
        self._allocations[address] = allocation

    def hide(self, names: Sequence[str]) -> list[int]:
        """Return an address for each hidden argument that points to what is not emulated: an access says so."""
        self._hidden = list(names)
        return [_HIDDEN_BASE + _HIDDEN_STRIDE * number for number in range(len(names))]

    def mark_written(self, address: int, size: int) -> None:
        """Note that the host has written; ``EmulationFault`` if that began in an allocation and went beyond it."""
        place = bisect.bisect_right(self._bases, address) - 1
        base = self._bases[place] if place >= 0 else 0
        if place >= 0 and address < base + len(self._allocations[base].u8):
            allocation, base = self._of(address, size, 0)
            allocation.mark_written(address - base, size)

    def note_accesses(self, touched: list[Touch] | None) -> None:
        """Note all accesses in ``touched``, or no more."""
        for allocation in self._allocations.values():
            allocation.touched = touched

    def unmap(self, address: int) -> None:
        """Take away what is mapped at an address, if anything is."""
        if self._allocations.pop(address, None):
            self._bases.remove(address)

    def load(self, at: Array, size: int, lanes: Array) -> Array:
        """Read ``size`` bytes per lane at an address, as ``Allocation.load`` does."""
        values = np.empty((max(1, size // WORD_BYTES), len(at)), np.uint32)
        for allocation, places, offsets in self._parts(at, size, lanes):
            values[:, places] = allocation.load(offsets, size, lanes[places])
        return values

    def store(self, at: Array, size: int, values: Array, lanes: Array) -> None:
        """Write ``size`` bytes per lane at an address, as ``Allocation.store`` does."""
        for allocation, places, offsets in self._parts(at, size, lanes):
            allocation.store(offsets, size, values[:, places], lanes[places])

    def _of(self, address: int, size: int, lane: int) -> tuple[Allocation, int]:
        place = bisect.bisect_right(self._bases, address)
        if place:
            base = self._bases[place - 1]
            allocation = self._allocations[base]
            if address + size <= base + len(allocation.u8):
                return allocation, base
        number = (address - _HIDDEN_BASE) // _HIDDEN_STRIDE
        if 0 <= number < len(self._hidden):
            raise UnsupportedInstruction(f"what {self._hidden[number]} points to is not emulated")
        near = min(
            self._bases[max(place - 1, 0) : place + 1], key=lambda base: self._distance(base, address), default=None
        )
        what = f"{size} bytes at address {address:#x} are in no memory that was allocated"
        if near is not None:
            what += f": offset {address - near} of {self._allocations[near].name}, which has "
            what += f"{len(self._allocations[near].u8)} bytes"
        raise MemoryFault(what, lane)

    def _distance(self, base: int, address: int) -> int:
        return base - address if address < base else address - base - len(self._allocations[base].u8)

    def _parts(self, at: Array, size: int, lanes: Array) -> list[tuple[Allocation, Any, Array]]:
        if not len(at):
            return []
        allocation, base = self._of(int(at[0]), size, int(lanes[0]))
        offsets = at - base
        inside = (offsets >= 0) & (offsets + size <= len(allocation.u8))
        if inside.all():
            return [(allocation, slice(None), offsets)]
        rest = np.flatnonzero(~inside)
        others = [(other, rest[places], there) for other, places, there in self._parts(at[rest], size, lanes[rest])]
        return [(allocation, np.flatnonzero(inside), offsets[inside]), *others]


@dataclass(slots=True)
class Accesses:
    """Where the active lanes of some waves access memory in one instruction."""

    memory: Allocation | GlobalMemory
    lanes: Array
    """Numbers of the active lanes: those of the first wave, then of the next."""
    at: Array
    """Address per active lane."""
    inside: Array | None = None
    """Which words [words, active lanes] are inside of the buffer; ``None``: all. Outside, loads give 0 and stores do
    nothing."""

    def of_lanes(self, kept: Array, lanes: Array) -> Accesses:
        """Return the accesses of some lanes, which get new numbers."""
        return Accesses(self.memory, lanes, self.at[kept], None if self.inside is None else self.inside[:, kept])

    def load(self, size: int) -> Array:
        """Read ``size`` bytes per lane, as ``Allocation.load`` does, zeros outside of the buffer."""
        if self.inside is None:
            return self.memory.load(self.at, size, self.lanes)
        values = np.zeros(self.inside.shape, np.uint32)
        for word, valid in enumerate(self.inside):
            at = self.at[valid] + WORD_BYTES * word
            values[word, valid] = self.memory.load(at, min(size, WORD_BYTES), self.lanes[valid])[0]
        return values

    def store(self, size: int, values: Array) -> None:
        """Write ``size`` bytes per lane, as ``Allocation.store`` does, nothing outside of the buffer."""
        if self.inside is None:
            self.memory.store(self.at, size, values, self.lanes)
            return
        for word, valid in enumerate(self.inside):
            at = self.at[valid] + WORD_BYTES * word
            self.memory.store(at, min(size, WORD_BYTES), values[word : word + 1, valid], self.lanes[valid])
