"""Code objects of AMD GPUs: ELF files with machine code, a descriptor a kernel, and a note on its arguments.

The layout is that of the LLVM user guide for the AMDGPU backend, code object V3 and later.
"""

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

METADATA_NOTE = 32
"""``NT_AMDGPU_METADATA``."""
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a code object; addresses are those of the file."""

    name: str
    entry: int
    """Where its code begins."""
    lds_bytes: int
    scratch_bytes: int
    """Private memory a lane."""
    kernarg_bytes: int
    arguments: tuple[dict[str, Any], ...]
    """Offset, size and kind of each."""
    rsrc2: int
    """``COMPUTE_PGM_RSRC2``: user SGPRs, which workgroup and work-item numbers are given."""
    properties: int
    """Which user SGPRs there are."""


@dataclass(frozen=True)
class CodeObject:
    """Kernels by name, and the memory that a loader makes of the file."""

    arch: str
    kernels: dict[str, Kernel]
    image: bytes
    code: tuple[int, int]
    """First address of the machine code, and the one behind it."""


@contextmanager
def open_elf(content: bytes, what: str) -> Iterator[ELFFile]:
    """Yield an ELF file to read; whatever fails in the block is a ``ValueError`` that says that it is no ``what``.

    What pyelftools raises for a damaged file is whatever its parser stumbles over.
    """
    try:
        yield ELFFile(io.BytesIO(content))
    except Exception as error:
        raise ValueError(f"this is no {what}: {error!r}") from error


def metadata(elf: ELFFile) -> list[dict[str, Any]]:
    """What the note of a code object says of each kernel."""
    return _note(elf)["amdhsa.kernels"]


def bytes_at(elf: ELFFile, address: int, size: int) -> bytes:
    """Content of a loaded file at an address."""
    for section in elf.iter_sections():
        start = section["sh_addr"]
        if section["sh_type"] == "SHT_PROGBITS" and start <= address < start + section["sh_size"]:
            return section.data()[address - start : address - start + size]
    raise KeyError(f"address {address:#x}")


def symbols(elf: ELFFile) -> dict[str, tuple[int, int]]:
    """Address and size of each symbol."""
    return {
        symbol.name: (symbol["st_value"], symbol["st_size"])
        for section in elf.iter_sections()
        if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols()
    }


def load(content: bytes) -> CodeObject:
    """Read a code object; ``ValueError`` if ``content`` is none."""
    with open_elf(content, "AMDGPU code object") as elf:
        loaded = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        image = bytearray(max(segment["p_vaddr"] + segment["p_memsz"] for segment in loaded))
        for segment in loaded:
            image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
        text = next(section for section in elf.iter_sections() if section.name == ".text")
        found = symbols(elf)
        note = _note(elf)
        kernels = [_kernel(row, elf, found[row[".symbol"]][0]) for row in note["amdhsa.kernels"]]
        code = (text["sh_addr"], text["sh_addr"] + text["sh_size"])
        # The target is amdgcn-amd-amdhsa--gfx950, with features such as :xnack- behind it.
        arch = str(note["amdhsa.target"]).rpartition("--")[2].partition(":")[0]
        return CodeObject(arch, {kernel.name: kernel for kernel in kernels}, bytes(image), code)


def bundled(content: bytes) -> bytes:
    """The code object of a bundle that the compiler puts into a library; ``ValueError`` if there is not exactly one."""
    if not content.startswith(BUNDLE):
        raise ValueError("this is no bundle of code objects")
    found = [content[begin:end] for target, begin, end in _bundled(content) if b"amdgcn" in target]
    if len(found) != 1:
        raise ValueError(f"the bundle has {len(found)} code objects; build the library for one arch")
    return found[0]


def bundle_bytes(head: bytes) -> int:
    """How long a bundle is, by its first bytes."""
    return max((end for _, _, end in _bundled(head)), default=0)


def _bundled(head: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Target, begin and end of each part of a bundle."""
    (count,) = struct.unpack_from("<Q", head, len(BUNDLE))
    at = len(BUNDLE) + 8
    for _ in range(count):
        begin, size, length = struct.unpack_from("<QQQ", head, at)
        yield head[at + 24 : at + 24 + length], begin, begin + size
        at += 24 + length


def _kernel(row: dict[str, Any], elf: ELFFile, descriptor: int) -> Kernel:
    content = bytes_at(elf, descriptor, 64)
    lds, scratch, kernarg = struct.unpack_from("<III", content, 0)
    (entry,) = struct.unpack_from("<q", content, 16)
    (rsrc2,) = struct.unpack_from("<I", content, 52)
    (properties,) = struct.unpack_from("<H", content, 56)
    return Kernel(
        row[".name"], descriptor + entry, lds, scratch, kernarg, tuple(row.get(".args", [])), rsrc2, properties
    )


def _note(elf: ELFFile) -> dict[str, Any]:
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_name"] == "AMDGPU" and note["n_type"] in (METADATA_NOTE, "NT_AMDGPU_METADATA"):
                    payload = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
                    return msgpack.unpackb(payload)
    raise KeyError("NT_AMDGPU_METADATA")
