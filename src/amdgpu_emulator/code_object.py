"""Code objects of AMD GPUs: ELF files with machine code, a descriptor per kernel, and a note on its arguments.

The layout is that of the LLVM user guide for the AMDGPU backend, code object V3 and later.
"""

from __future__ import annotations

import bisect
import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

if TYPE_CHECKING:
    from amdgpu_emulator.device import Argument, Execution

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


@dataclass(frozen=True)
class KernelDescriptor:
    """One kernel of a code object; addresses are those of the file."""

    name: str
    entry: int
    """Address of its first instruction."""
    code_bytes: int
    """Size of its machine code."""
    lds_bytes: int
    scratch_bytes: int
    """Private memory per lane."""
    kernarg_bytes: int
    arguments: tuple[dict[str, Any], ...]
    """Rows of the metadata: ``.offset``, ``.size`` and ``.value_kind`` of each argument."""
    rsrc2: int
    """``COMPUTE_PGM_RSRC2``: the number of user SGPRs, and which workgroup and work-item ids the kernel reads."""
    properties: int
    """``KERNEL_CODE_PROPERTIES``: which user SGPRs are set."""

    @property
    def explicit_arguments(self) -> list[dict[str, Any]]:
        """Rows of the arguments that the host passes; the runtime adds the others."""
        return [row for row in self.arguments if not row[".value_kind"].startswith("hidden_")]


@dataclass(frozen=True, eq=False)
class CodeObject:
    """Kernels by name, and the memory image that a loader makes of the file."""

    arch: str
    kernels: dict[str, KernelDescriptor]
    image: bytes
    text: tuple[int, int]
    """First address of the machine code, and the one behind it."""
    lines: tuple[tuple[int, str], ...] = ()
    """Where each source line begins, by address, if the compiler has noted that (``-gline-tables-only``)."""

    def source(self, address: int) -> str:
        """Return the file and line of an instruction; empty without debug information."""
        at = bisect.bisect_right(self.lines, address, key=itemgetter(0)) - 1
        return self.lines[at][1] if at >= 0 else ""

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Argument], **options: Any
    ) -> Execution:
        """Execute a kernel on a GPU of its own; see ``EmulatedGpu.launch``."""
        # Here, because the module of the GPU imports this one.
        from amdgpu_emulator.device import EmulatedGpu

        return EmulatedGpu().launch(self, kernel, grid, block, arguments, **options)


def load(content: bytes | Path | str) -> CodeObject:
    """Read a code object, alone or in the bundle that the compiler puts into a library; else ``ValueError``."""
    if isinstance(content, Path | str):
        content = Path(content).read_bytes()
    if content.startswith(_BUNDLE):
        parts = [content[begin:end] for target, begin, end in _bundle_entries(content) if b"amdgcn" in target]
        if len(parts) != 1:
            raise ValueError(f"the bundle has {len(parts)} code objects; build the library for one arch")
        content = parts[0]
    try:
        return _code_object(ELFFile(io.BytesIO(content)))
    except Exception as error:
        # What pyelftools raises for a damaged file is whatever its parser stumbles over.
        raise ValueError(f"this is no AMDGPU code object: {error!r}") from error


def bundle_bytes(head: bytes) -> int:
    """Return the size of a bundle of code objects, by its first bytes; ``ValueError`` if it is none."""
    if not head.startswith(_BUNDLE):
        raise ValueError("this is no bundle of code objects")
    return max((end for _, _, end in _bundle_entries(head)), default=0)


def _bundle_entries(head: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the target, begin and end of each part of a bundle."""
    (count,) = struct.unpack_from("<Q", head, len(_BUNDLE))
    at = len(_BUNDLE) + 8
    for _ in range(count):
        begin, size, length = struct.unpack_from("<QQQ", head, at)
        yield head[at + 24 : at + 24 + length], begin, begin + size
        at += 24 + length


def _code_object(elf: ELFFile) -> CodeObject:
    segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
    image = bytearray(max(segment["p_vaddr"] + segment["p_memsz"] for segment in segments))
    for segment in segments:
        image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
    (text,) = (section for section in elf.iter_sections() if section.name == ".text")
    tables = [section for section in elf.iter_sections() if isinstance(section, SymbolTableSection)]
    symbols = {s.name: (s["st_value"], s["st_size"]) for table in tables for s in table.iter_symbols()}
    notes = [
        note for section in elf.iter_sections() if isinstance(section, NoteSection) for note in section.iter_notes()
    ]
    (packed,) = (
        note["n_descdata"] for note in notes
        if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA")
    )  # fmt: skip
    metadata = msgpack.unpackb(packed)
    kernels = [_descriptor(row, image, symbols) for row in metadata["amdhsa.kernels"]]
    # The target is amdgcn-amd-amdhsa--gfx950, with features such as :xnack- behind it.
    arch = str(metadata["amdhsa.target"]).rpartition("--")[2].partition(":")[0]
    by_name = {kernel.name: kernel for kernel in kernels}
    return CodeObject(arch, by_name, bytes(image), (text["sh_addr"], text["sh_addr"] + text["sh_size"]), _lines(elf))


def _lines(elf: ELFFile) -> tuple[tuple[int, str], ...]:
    rows = []
    if not elf.has_dwarf_info():
        return ()
    dwarf = elf.get_dwarf_info()
    for unit in dwarf.iter_CUs():
        if program := dwarf.line_program_for_CU(unit):
            # The files of version 5 are counted from 0.
            files, first = program["file_entry"], int(program["version"] < 5)
            states = [entry.state for entry in program.get_entries() if entry.state]
            rows += [(s.address, f"{files[s.file - first].name.decode()}:{s.line}" if s.line else "") for s in states]
    return tuple(sorted(rows, key=itemgetter(0)))


def _descriptor(row: dict[str, Any], image: bytearray, symbols: dict[str, tuple[int, int]]) -> KernelDescriptor:
    address, _ = symbols[row[".symbol"]]
    lds, scratch, kernarg = struct.unpack_from("<III", image, address)
    (entry,) = struct.unpack_from("<q", image, address + 16)
    (rsrc2,) = struct.unpack_from("<I", image, address + 52)
    (properties,) = struct.unpack_from("<H", image, address + 56)
    arguments = tuple(row.get(".args", []))
    _, code_bytes = symbols[row[".name"]]
    return KernelDescriptor(
        row[".name"], address + entry, code_bytes, lds, scratch, kernarg, arguments, rsrc2, properties
    )
