"""What nvcc says of compiled kernels: the log of ptxas, and the machine code in a cubin file."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

from elftools.elf.sections import SymbolTableSection

from tileseer.compile.elf import open_elf

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_FUNCTION = re.compile(r"Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
REGISTER_BYTES = 4


@dataclass(frozen=True)
class Usage:
    """What one kernel takes, by the assembler."""

    registers: int
    """A thread."""
    stack_bytes: int
    """A thread: spilled registers and arrays."""
    spills: int
    """Registers a thread that are stored for want of room; loops count once."""
    static_shared_bytes: int
    """A block; what is asked for at the launch comes on top."""


def usages(log: str) -> dict[str, Usage]:
    """Return what ``ptxas --verbose`` printed of each kernel, by symbol."""
    found: dict[str, Usage] = {}
    entries = set(_ENTRY.findall(log))
    symbol, stack = "", (0, 0)
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            symbol, stack = match[1], (0, 0)
        elif match := _STACK.search(line):
            stack = int(match[1]), int(match[2])
        elif (match := _REGISTERS.search(line)) and symbol in entries:
            shared = _SHARED.search(line)
            found[symbol] = Usage(int(match[1]), stack[0], stack[1] // REGISTER_BYTES, int(shared[1]) if shared else 0)
    return found


def code(content: bytes) -> dict[str, tuple[int, str]]:
    """Return bytes and hash (16 hex digits) of the machine code of each kernel of a cubin, by symbol.

    ``ValueError`` if ``content`` is none.
    """
    with open_elf(content, "cubin") as elf:
        texts = {section.name.removeprefix(".text."): section.data() for section in elf.iter_sections()
                 if section.name.startswith(".text.")}  # fmt: skip
    return {symbol: (len(text), hashlib.sha256(text).hexdigest()[:16]) for symbol, text in texts.items()}


def numbers(content: bytes, symbol: str, count: int) -> tuple[int, ...]:
    """Return the ints of a constant array in an object file; ``ValueError`` if it is not there."""
    with open_elf(content, f"object file with {symbol}") as elf:
        for table in elf.iter_sections():
            if isinstance(table, SymbolTableSection) and (found := table.get_symbol_by_name(symbol)):
                data = elf.get_section(found[0]["st_shndx"]).data()
                return struct.unpack_from(f"<{count}i", data, found[0]["st_value"])
    raise ValueError(f"the object file has no symbol {symbol}")
