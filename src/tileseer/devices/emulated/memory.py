"""Memory as kernels see it: LDS and scratch of their own, and the process's memory where it was handed out."""

import bisect
import ctypes
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileseer.devices.emulated.faults import EmulationFault

Array = NDArray[Any]
WORD = 4
_STEPS = {count: np.arange(count)[:, None] for count in range(1, 17)}
_SMALL = {1: np.uint8, 2: np.uint16}


class Block:
    """Bytes in one piece, read and written by many lanes at once; offsets are int64, one a lane."""

    def __init__(self, content: Array, name: str) -> None:
        self.u8, self.name = content, name
        self._views = {size: content[: len(content) // size * size].view(f"u{size}") for size in (1, 2, 4)}

    def words(self, at: Array, count: int) -> Array:
        """Read ``count`` words a lane: uint32 [count, lanes]."""
        self._within(at, count * WORD)
        if (at & 3).any():
            bytes_ = self.u8[at[:, None] + np.arange(count * WORD)]
            return np.ascontiguousarray(bytes_).view(np.uint32).T
        return self._views[4][(at >> 2) + _STEPS[count]]

    def set_words(self, at: Array, values: Array) -> None:
        """Write words [count, lanes]; the lanes in order, so the last one stays where several write."""
        self._within(at, len(values) * WORD)
        if (at & 3).any():
            bytes_ = np.ascontiguousarray(values.T).view(np.uint8)
            self.u8[at[:, None] + np.arange(bytes_.shape[1])] = bytes_
        else:
            self._views[4][(at >> 2) + _STEPS[len(values)]] = values

    def small(self, at: Array, size: int) -> Array:
        """Read ``size`` bytes (1 or 2) a lane, as uint32."""
        self._within(at, size)
        if size == 2 and (at & 1).any():
            return self.small(at, 1) | self.small(at + 1, 1) << 8
        return self._views[size][at // size].astype(np.uint32)

    def set_small(self, at: Array, size: int, values: Array) -> None:
        """Write the lowest ``size`` bytes of a word a lane."""
        self._within(at, size)
        if size == 2 and (at & 1).any():
            self.set_small(at, 1, values)
            self.set_small(at + 1, 1, values >> 8)
        else:
            self._views[size][at // size] = values.astype(_SMALL[size])

    def _within(self, at: Array, size: int) -> None:
        if len(at) and not (at.min() >= 0 and at.max() + size <= len(self.u8)):
            wrong = int(at[(at < 0) | (at + size > len(self.u8))][0])
            raise EmulationFault(f"{size} bytes at {wrong} are outside of {self.name}, which has {len(self.u8)} bytes")


class Memory:
    """Blocks of the process's memory; an access outside of them is a fault, as on a GPU."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._blocks: dict[int, Block] = {}
        self.clock = itertools.count()

    def add(self, address: int, size: int, name: str) -> None:
        """Hand out memory that exists."""
        raw = (ctypes.c_uint8 * size).from_address(address)
        bisect.insort(self._bases, address)
        self._blocks[address] = Block(np.ctypeslib.as_array(raw), name)

    def remove(self, address: int) -> None:
        """Take memory back."""
        self._bases.remove(address)
        del self._blocks[address]

    def words(self, at: Array, count: int) -> Array:
        """As ``Block.words``, by address."""
        found = np.empty((count, len(at)), np.uint32)
        for block, lanes, offsets in self._parts(at, count * WORD):
            found[:, lanes] = block.words(offsets, count)
        return found

    def set_words(self, at: Array, values: Array) -> None:
        """As ``Block.set_words``, by address."""
        for block, lanes, offsets in self._parts(at, len(values) * WORD):
            block.set_words(offsets, values[:, lanes])

    def small(self, at: Array, size: int) -> Array:
        """As ``Block.small``, by address."""
        found = np.empty(len(at), np.uint32)
        for block, lanes, offsets in self._parts(at, size):
            found[lanes] = block.small(offsets, size)
        return found

    def set_small(self, at: Array, size: int, values: Array) -> None:
        """As ``Block.set_small``, by address."""
        for block, lanes, offsets in self._parts(at, size):
            block.set_small(offsets, size, values[lanes])

    def bytes(self, address: int, size: int) -> Array:
        """Content at one address, as uint8."""
        block, base = self._of(address, size)
        return block.u8[address - base : address - base + size]

    def _of(self, address: int, size: int) -> tuple[Block, int]:
        place = bisect.bisect_right(self._bases, address) - 1
        if place >= 0:
            base = self._bases[place]
            block = self._blocks[base]
            if address + size <= base + len(block.u8):
                return block, base
        raise EmulationFault(f"{size} bytes at address {address:#x} are in no memory that was allocated")

    def _parts(self, at: Array, size: int) -> list[tuple[Block, Any, Array]]:
        if not len(at):
            return []
        block, base = self._of(int(at[0]), size)
        offsets = at - base
        inside = (offsets >= 0) & (offsets + size <= len(block.u8))
        if inside.all():
            return [(block, slice(None), offsets)]
        rest = np.flatnonzero(~inside)
        others = [(other, rest[lanes], there) for other, lanes, there in self._parts(at[rest], size)]
        return [(block, np.flatnonzero(inside), offsets[inside]), *others]
