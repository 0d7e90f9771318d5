"""Compiled code as files hold it: code objects of AMD GPUs, cubins of NVIDIA GPUs, whole and damaged ELF files.

A symbol of a kernel's name bounds its code in a code object of AMD (``gpu.code_object``).
"""

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tileseer.compile.base import Resources
from tileseer.gpu import code_object
from tileseer.gpu.code_object import open_elf

_DESCRIPTOR_BYTES = 64
_ENTRY_OFFSET = slice(16, 24)
"""In a kernel descriptor: where the code begins, relative to the descriptor. It says where, not what."""
_REGISTER_BYTES = 4

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_FUNCTION = re.compile(r"Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Code:
    """The machine code of one kernel."""

    resources: Resources
    hash: str
    """16 hex digits of what is executed, without where it lies."""


def fault(content: bytes, names: Sequence[str] = ()) -> str:
    """Why ``content`` is no whole ELF file that holds all ``names``; empty if it is one."""
    if not content:
        return "it is empty"
    try:
        with open_elf(content, "ELF file") as file:
            sections = list(file.iter_sections())
    except ValueError as error:
        return str(error)
    ends = [section["sh_offset"] + section["sh_size"] for section in sections if section["sh_type"] != "SHT_NOBITS"]
    if not ends or max(ends) > len(content):
        return "it is cut short"
    missing = [name for name in names if name.encode() not in content]
    return f"it does not hold {missing[0]}" if missing else ""


def amd_kernels(content: bytes) -> dict[str, Code]:
    """Kernels of a code object by symbol; ``ValueError`` if ``content`` is none."""
    with open_elf(content, "AMDGPU code object") as elf:
        symbols = code_object.symbols(elf)
        return {row[".name"]: _amd_kernel(row, elf, symbols) for row in code_object.metadata(elf)}


def ptxas_usages(log: str) -> dict[str, Resources]:
    """What ``ptxas --verbose`` printed of each kernel, by symbol; shared memory asked for at the launch is not in it.

    Spills are registers a thread that are stored; loops count once.
    """
    found: dict[str, Resources] = {}
    entries = set(_ENTRY.findall(log))
    symbol, stack = "", (0, 0)
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            symbol, stack = match[1], (0, 0)
        elif match := _STACK.search(line):
            stack = int(match[1]), int(match[2]) // _REGISTER_BYTES
        elif (match := _REGISTERS.search(line)) and symbol in entries:
            shared = _SHARED.search(line)
            found[symbol] = Resources(
                "code_object", vgprs=float(match[1]), lds_bytes=int(shared[1]) if shared else 0,
                scratch_bytes=stack[0], vgpr_spills=stack[1],
            )  # fmt: skip
    return found


def cubin_code(content: bytes) -> dict[str, tuple[int, str]]:
    """Bytes and hash (16 hex digits) of the machine code of each kernel of a cubin, by symbol.

    ``ValueError`` if ``content`` is none.
    """
    with open_elf(content, "cubin") as elf:
        texts = {section.name.removeprefix(".text."): section.data() for section in elf.iter_sections()
                 if section.name.startswith(".text.")}  # fmt: skip
    return {symbol: (len(text), hashlib.sha256(text).hexdigest()[:16]) for symbol, text in texts.items()}


def numbers(content: bytes, symbol: str, count: int) -> tuple[int, ...]:
    """Ints of a constant array in an object file; ``ValueError`` if it is not there."""
    with open_elf(content, f"object file with {symbol}") as elf:
        for table in elf.iter_sections():
            if isinstance(table, SymbolTableSection) and (found := table.get_symbol_by_name(symbol)):
                data = elf.get_section(found[0]["st_shndx"]).data()
                return struct.unpack_from(f"<{count}i", data, found[0]["st_value"])
    raise ValueError(f"the object file has no symbol {symbol}")


def _amd_kernel(row: dict[str, Any], elf: ELFFile, symbols: dict[str, tuple[int, int]]) -> Code:
    address, size = symbols[row[".name"]]
    code = code_object.bytes_at(elf, address, size)
    descriptor = bytearray(code_object.bytes_at(elf, symbols[row[".symbol"]][0], _DESCRIPTOR_BYTES))
    descriptor[_ENTRY_OFFSET] = bytes(8)
    agprs = row.get(".agpr_count", 0)
    resources = Resources(
        "code_object",
        vgprs=float(row[".vgpr_count"] - agprs),
        agprs=agprs,
        sgprs=row[".sgpr_count"],
        lds_bytes=row[".group_segment_fixed_size"],
        scratch_bytes=row[".private_segment_fixed_size"],
        vgpr_spills=row.get(".vgpr_spill_count", 0),
        sgpr_spills=row.get(".sgpr_spill_count", 0),
        threads=row[".max_flat_workgroup_size"],
        code_bytes=size,
    )
    return Code(resources, hashlib.sha256(code + bytes(descriptor)).hexdigest()[:16])
