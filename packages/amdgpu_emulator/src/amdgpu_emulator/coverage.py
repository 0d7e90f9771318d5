"""How much of their machine code launches have executed."""

from collections import defaultdict

from amdgpu_emulator import decoder
from amdgpu_emulator.code_object import CodeObject


class Coverage:
    """Adds up the launches that it is passed to."""

    def __init__(self) -> None:
        self._reached: dict[tuple[CodeObject, str], set[int]] = defaultdict(set)
        self._all: dict[tuple[CodeObject, str], dict[int, str]] = {}

    def add(self, code: CodeObject, kernel: str, addresses: set[int]) -> None:
        """Note that a launch of a kernel reached the instructions at these addresses."""
        self._reached[code, kernel] |= addresses

    def launched(self, code: CodeObject) -> list[str]:
        """Return the kernels of a code object that were launched."""
        return [kernel for other, kernel in self._reached if other is code]

    def counts(self, code: CodeObject, kernel: str) -> tuple[int, int]:
        """Return the instructions of a kernel that were executed, and all that it has."""
        every = self._opcodes(code, kernel)
        return len(every.keys() & self._reached.get((code, kernel), set())), len(every)

    def missing(self, code: CodeObject, kernel: str) -> dict[int, str]:
        """Return the opcodes of the instructions of a kernel that were not executed, by their addresses."""
        reached = self._reached.get((code, kernel), set())
        return {at: name for at, name in self._opcodes(code, kernel).items() if at not in reached}

    def _opcodes(self, code: CodeObject, kernel: str) -> dict[int, str]:
        key = code, kernel
        if key not in self._all:
            begin, size = code.kernels[kernel].entry, code.kernels[kernel].code_bytes
            self._all[key] = {
                at: "no instruction" if isinstance(inst, str) else inst.name.lower()
                for at, inst in decoder.listing(code.image, begin, begin + size, code.arch)
            }
        return self._all[key]
