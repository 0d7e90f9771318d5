"""Compiled code as files hold it: code objects of AMD GPUs, cubins of NVIDIA GPUs, whole and damaged ELF files.

In a code object of AMD a symbol of a kernel's name bounds its code. The emulator has a reader of its own: if this was
the same one, a change of the emulator would compile all kernels again.
"""

import hashlib
import io
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from tileseer.build.base import Resources

_DESCRIPTOR_BYTES = 64
_ENTRY_OFFSET = slice(16, 24)
"""In a kernel descriptor: where the code begins, relative to the descriptor. It says where, not what."""
_REGISTER_BYTES = 4

_PTXAS = re.compile(
    r"Compiling entry function '(?P<symbol>\w+)' for.*?Function properties for (?P=symbol)\n"
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<spilled>\d+) bytes spill stores.*?"
    r"Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class KernelCode:
    """The machine code of one kernel."""

    resources: Resources
    hash: str
    """16 hex digits of what is executed, without where it lies."""


@contextmanager
def open_elf(content: bytes, what: str) -> Iterator[ELFFile]:
    """Yield an ELF file to read; whatever fails in the block is a ``ValueError`` that says that it is no ``what``.

    What pyelftools raises for a damaged file is whatever its parser stumbles over.
    """
    try:
        yield ELFFile(io.BytesIO(content))
    except Exception as error:
        raise ValueError(f"this is no {what}: {error!r}") from error


def fault(content: bytes, names: Sequence[str] = ()) -> str:
    """Say why ``content`` is no whole ELF file that holds all ``names``; the text is empty if it is one."""
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
    return f"it does not contain {missing[0]}" if missing else ""


def amd_kernels(content: bytes) -> dict[str, KernelCode]:
    """Return the kernels of a code object by symbol; ``ValueError`` if ``content`` is none."""
    with open_elf(content, "AMDGPU code object") as elf:
        sections = list(elf.iter_sections())
        tables = [section for section in sections if isinstance(section, SymbolTableSection)]
        symbols = {s.name: (s["st_value"], s["st_size"]) for table in tables for s in table.iter_symbols()}
        notes = [note for section in sections if isinstance(section, NoteSection) for note in section.iter_notes()]
        (metadata,) = (
            note["n_descdata"] for note in notes
            if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA")
        )  # fmt: skip
        rows = msgpack.unpackb(metadata)["amdhsa.kernels"]
        return {row[".name"]: _amd_kernel(row, elf, symbols) for row in rows}


def ptxas_usages(log: str) -> dict[str, Resources]:
    """Return what ``ptxas --verbose`` printed of each kernel, by symbol, without the shared memory of the launch.

    Spills are registers a thread that are stored; loops count once.
    """
    return {
        match["symbol"]: Resources(
            "code_object",
            vgprs=float(match["registers"]),
            lds_bytes=int(match["shared"] or 0),
            scratch_bytes=int(match["stack"]),
            vgpr_spills=int(match["spilled"]) // _REGISTER_BYTES,
        )
        for match in _PTXAS.finditer(log)
    }


def cubin_code(content: bytes) -> dict[str, tuple[int, str]]:
    """Return the bytes and hash (16 hex digits) of the machine code of each kernel of a cubin, by symbol.

    ``ValueError`` if ``content`` is none.
    """
    with open_elf(content, "cubin") as elf:
        sections = {section.name: section.data() for section in elf.iter_sections()}
    texts = {name.removeprefix(".text."): text for name, text in sections.items() if name.startswith(".text.")}
    return {symbol: (len(text), hashlib.sha256(text).hexdigest()[:16]) for symbol, text in texts.items()}


def numbers(content: bytes, symbol: str, count: int) -> tuple[int, ...]:
    """Return the ints of a constant array in an object file; ``ValueError`` if it is not there."""
    with open_elf(content, f"object file with {symbol}") as elf:
        for table in elf.iter_sections():
            if isinstance(table, SymbolTableSection) and (matches := table.get_symbol_by_name(symbol)):
                data = elf.get_section(matches[0]["st_shndx"]).data()
                return struct.unpack_from(f"<{count}i", data, matches[0]["st_value"])
    raise ValueError(f"the object file has no symbol {symbol}")


def _bytes_at(elf: ELFFile, address: int, size: int) -> bytes:
    """Return the content of a loaded file at an address."""
    for section in elf.iter_sections():
        start = section["sh_addr"]
        if section["sh_type"] == "SHT_PROGBITS" and start <= address < start + section["sh_size"]:
            return section.data()[address - start : address - start + size]
    raise KeyError(f"address {address:#x}")


def _amd_kernel(row: dict[str, Any], elf: ELFFile, symbols: dict[str, tuple[int, int]]) -> KernelCode:
    address, size = symbols[row[".name"]]
    code = _bytes_at(elf, address, size)
    descriptor = bytearray(_bytes_at(elf, symbols[row[".symbol"]][0], _DESCRIPTOR_BYTES))
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
    return KernelCode(resources, hashlib.sha256(code + bytes(descriptor)).hexdigest()[:16])
