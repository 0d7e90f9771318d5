"""How much of their machine code launches have executed."""

from collections import defaultdict

from amdgpu_emulator import decoder
from amdgpu_emulator.code_object import CodeObject
from amdgpu_emulator.faults import UnsupportedInstruction


class Coverage:
    """Adds up the launches that it is passed to."""

    def __init__(self) -> None:
        self._reached: dict[tuple[CodeObject, str], set[int]] = defaultdict(set)
        self._all: dict[tuple[CodeObject, str], frozenset[int]] = {}

    def add(self, code: CodeObject, kernel: str, addresses: set[int]) -> None:
        """Note that a launch of a kernel reached the instructions at these addresses."""
        self._reached[code, kernel] |= addresses

    def launched(self, code: CodeObject) -> list[str]:
        """Return the kernels of a code object that were launched."""
        return [kernel for other, kernel in self._reached if other is code]

    def counts(self, code: CodeObject, kernel: str) -> tuple[int, int]:
        """Return the instructions of a kernel that were executed, and all that it has."""
        key = code, kernel
        if key not in self._all:
            descriptor, addresses = code.kernels[kernel], []
            at = descriptor.entry
            while at < descriptor.entry + descriptor.code_bytes:
                addresses.append(at)
                try:
                    at += decoder.decode(code.image, at, code.arch).size()
                except UnsupportedInstruction:
                    at += 4
            self._all[key] = frozenset(addresses)
        return len(self._all[key] & self._reached.get(key, set())), len(self._all[key])
