"""Memory as kernels see it: the LDS of a workgroup, the scratch of a wave, and allocations of global memory."""

import bisect
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdgpu_emulator.faults import EmulationFault

Array = NDArray[Any]
WORD = 4
Touch = tuple["Allocation", Array, int, bool]
"""Allocation, offsets of the lanes, bytes of each, and whether they are stored."""
_STEPS = {count: np.arange(count)[:, None] for count in range(1, 17)}


class Allocation:
    """Bytes in one piece, read and written by many lanes at once; offsets are int64, one per lane."""

    def __init__(self, content: Array, name: str, touched: list[Touch] | None = None) -> None:
        self.u8, self.name = content, name
        self.touched = touched
        """Where accesses are noted; None: nowhere."""
        self._is_writable = content.flags.writeable
        self._views = {size: content[: len(content) // size * size].view(f"u{size}") for size in (1, 2, 4)}

    def load(self, at: Array, size: int) -> Array:
        """Read ``size`` bytes per lane: uint32 [words, lanes]; less than a word becomes one with zeros above."""
        self._within(at, size)
        if self.touched is not None:
            self.touched.append((self, at, size, False))
        unit, count = min(size, WORD), max(1, size // WORD)
        if unit > 1 and (at & unit - 1).any():
            values = np.zeros((len(at), count * WORD), np.uint8)
            values[:, :size] = self.u8[at[:, None] + np.arange(size)]
            return values.view(np.uint32).T
        values = self._views[unit][at // unit + _STEPS[count]]
        return values if unit == WORD else values.astype(np.uint32)

    def store(self, at: Array, size: int, values: Array) -> None:
        """Write the lowest ``size`` bytes of words [words, lanes]; of lanes at the same place the last one stays."""
        if not self._is_writable:
            raise EmulationFault(f"a store to {self.name}, which is read-only")
        self._within(at, size)
        if self.touched is not None:
            self.touched.append((self, at, size, True))
        unit = min(size, WORD)
        if unit > 1 and (at & unit - 1).any():
            bytes_ = np.ascontiguousarray(values.T).view(np.uint8)
            self.u8[at[:, None] + np.arange(size)] = bytes_[:, :size]
        else:
            view = self._views[unit]
            view[at // unit + _STEPS[len(values)]] = values.astype(view.dtype, copy=False)

    def _within(self, at: Array, size: int) -> None:
        if len(at) and not (at.min() >= 0 and at.max() + size <= len(self.u8)):
            wrong = int(at[(at < 0) | (at + size > len(self.u8))][0])
            raise EmulationFault(f"{size} bytes at {wrong} are outside of {self.name}, which has {len(self.u8)} bytes")


class GlobalMemory:
    """Allocations by their addresses; an access outside of them is a fault, as on a GPU."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: dict[int, Allocation] = {}
        self.clock = itertools.count()
        """There is no time: it counts how often a kernel has read it."""

    def map(self, address: int, content: Array, name: str) -> None:
        """Let kernels read and write an array of bytes at an address; ``name`` is for the message of a fault."""
        bisect.insort(self._bases, address)
        self._allocations[address] = Allocation(content, name)

    def note_accesses(self, touched: list[Touch] | None) -> None:
        """Note all accesses in ``touched``, or no more."""
        for allocation in self._allocations.values():
            allocation.touched = touched

    def unmap(self, address: int) -> None:
        """Take away what is mapped at an address, if anything is."""
        if self._allocations.pop(address, None):
            self._bases.remove(address)

    def load(self, at: Array, size: int) -> Array:
        """As ``Allocation.load``, by address."""
        values = np.empty((max(1, size // WORD), len(at)), np.uint32)
        for allocation, lanes, offsets in self._parts(at, size):
            values[:, lanes] = allocation.load(offsets, size)
        return values

    def store(self, at: Array, size: int, values: Array) -> None:
        """As ``Allocation.store``, by address."""
        for allocation, lanes, offsets in self._parts(at, size):
            allocation.store(offsets, size, values[:, lanes])

    def bytes(self, address: int, size: int) -> Array:
        """Content at one address, as uint8."""
        allocation, base = self._of(address, size)
        if allocation.touched is not None:
            allocation.touched.append((allocation, np.array([address - base]), size, False))
        return allocation.u8[address - base : address - base + size]

    def _of(self, address: int, size: int) -> tuple[Allocation, int]:
        place, near = bisect.bisect_right(self._bases, address) - 1, ""
        if place >= 0:
            base = self._bases[place]
            allocation = self._allocations[base]
            if address + size <= base + len(allocation.u8):
                return allocation, base
            near = f": offset {address - base} of {allocation.name}, which has {len(allocation.u8)} bytes"
        raise EmulationFault(f"{size} bytes at address {address:#x} are in no memory that was allocated{near}")

    def _parts(self, at: Array, size: int) -> list[tuple[Allocation, Any, Array]]:
        if not len(at):
            return []
        allocation, base = self._of(int(at[0]), size)
        offsets = at - base
        inside = (offsets >= 0) & (offsets + size <= len(allocation.u8))
        if inside.all():
            return [(allocation, slice(None), offsets)]
        rest = np.flatnonzero(~inside)
        others = [(other, rest[lanes], there) for other, lanes, there in self._parts(at[rest], size)]
        return [(allocation, np.flatnonzero(inside), offsets[inside]), *others]
