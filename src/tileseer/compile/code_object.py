"""What an AMDGPU code object says of its kernels: registers, LDS, scratch, code; and what their assembly consists of.

The code object is an ELF file. Its NT_AMDGPU_METADATA note is MessagePack with one map a kernel, as the LLVM user
guide for the AMDGPU backend describes it (code object V3 and later). A symbol of a kernel's name bounds its code.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from tileseer.compile.base import InstructionMix
from tileseer.compile.elf import open_elf

METADATA_NOTE = 32
"""``NT_AMDGPU_METADATA``."""
_DESCRIPTOR_BYTES = 64
_ENTRY_OFFSET = slice(16, 24)
"""In a kernel descriptor: where the code begins, relative to the descriptor. It says where, not what."""

_CLASSES = (
    ("mfma", re.compile(r"v_(s?mfmac?|s?wmmac?)_")),
    ("buffer_loads", re.compile(r"(buffer|global|flat)_load")),
    ("buffer_stores", re.compile(r"(buffer|global|flat)_(store|atomic)")),
    ("lds_reads", re.compile(r"ds_(read|load)")),
    ("lds_writes", re.compile(r"ds_(write|store)")),
    ("barriers", re.compile(r"s_barrier")),
)
_LABEL = re.compile(r"([\w.$]+):")
_INSTRUCTION = re.compile(r"\t([a-z]\w*)\b")
_END = re.compile(r"\t\.size\t([\w.$]+),|\.Lfunc_end")


@dataclass(frozen=True)
class CodeKernel:
    """One kernel of a code object."""

    symbol: str
    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    threads: int
    """Most threads of a block."""
    code_bytes: int
    code_hash: str
    """16 hex digits of machine code and descriptor, without where they lie."""


def kernels(content: bytes) -> dict[str, CodeKernel]:
    """Return the kernels of a code object by symbol; ``ValueError`` if ``content`` is none."""
    with open_elf(content, "AMDGPU code object") as elf:
        symbols = _symbols(elf)
        return {row[".name"]: _kernel(row, elf, symbols) for row in _metadata(elf)}


def instruction_mixes(assembly: str) -> dict[str, InstructionMix]:
    """Return how many instructions of each kind the functions of an assembly listing have, by symbol."""
    counts: dict[str, Counter[str]] = {}
    current: Counter[str] | None = None
    started = ""
    for line in assembly.splitlines():
        if match := _LABEL.match(line):
            if not match[1].startswith((".L", "BB")):
                started = match[1]
                current = counts.setdefault(started, Counter())
            continue
        if _END.match(line):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current["total"] += 1
            current.update(name for name, pattern in _CLASSES if pattern.match(match[1]))
    fields = InstructionMix.__dataclass_fields__
    return {symbol: InstructionMix(**{field: mix[field] for field in fields}) for symbol, mix in counts.items()}


def _metadata(elf: ELFFile) -> list[dict[str, Any]]:
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_name"] == "AMDGPU" and note["n_type"] in (METADATA_NOTE, "NT_AMDGPU_METADATA"):
                    payload = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
                    return msgpack.unpackb(payload)["amdhsa.kernels"]
    raise KeyError("NT_AMDGPU_METADATA")


def _symbols(elf: ELFFile) -> dict[str, tuple[int, int]]:
    """Return (address, size) of every symbol."""
    return {
        symbol.name: (symbol["st_value"], symbol["st_size"])
        for section in elf.iter_sections()
        if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols()
    }


def _bytes_at(elf: ELFFile, address: int, size: int) -> bytes:
    for section in elf.iter_sections():
        start = section["sh_addr"]
        if section["sh_type"] == "SHT_PROGBITS" and start <= address < start + section["sh_size"]:
            return section.data()[address - start : address - start + size]
    raise KeyError(f"address {address:#x}")


def _kernel(row: dict[str, Any], elf: ELFFile, symbols: dict[str, tuple[int, int]]) -> CodeKernel:
    address, size = symbols[row[".name"]]
    code = _bytes_at(elf, address, size)
    descriptor = bytearray(_bytes_at(elf, symbols[row[".symbol"]][0], _DESCRIPTOR_BYTES))
    descriptor[_ENTRY_OFFSET] = bytes(8)
    return CodeKernel(
        symbol=row[".name"],
        vgprs=row[".vgpr_count"] - row.get(".agpr_count", 0),
        agprs=row.get(".agpr_count", 0),
        sgprs=row[".sgpr_count"],
        lds_bytes=row[".group_segment_fixed_size"],
        scratch_bytes=row[".private_segment_fixed_size"],
        vgpr_spills=row.get(".vgpr_spill_count", 0),
        sgpr_spills=row.get(".sgpr_spill_count", 0),
        threads=row[".max_flat_workgroup_size"],
        code_bytes=size,
        code_hash=hashlib.sha256(code + bytes(descriptor)).hexdigest()[:16],
    )
