"""Code objects of AMD GPUs: ELF files with machine code, a descriptor per kernel, and a note on its arguments.

The layout is that of the LLVM user guide for the AMDGPU backend, code object V3 and later. Files come from others:
what does not fit together is a ``ValueError`` of one line before anything is executed, and what is read and kept is
bounded by the size of the file.
"""

from __future__ import annotations

import bisect
import io
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection

from amdgpu_emulator.names import base_name, qualified_name

if TYPE_CHECKING:
    from amdgpu_emulator.device import Argument, Execution

_BUNDLE, _COMPRESSED_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
_HSA = 64
"""The operating system of a code object."""
_ARCH_OF_FLAGS = {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}
"""The arch that the lowest byte of the ELF header's flags stands for."""
_FEATURE_FLAGS = 0xF00
"""XNACK and SRAM-ECC."""
_EXECUTABLE = 1
"""Flag of segments."""
_METADATA_NOTE, _ABSOLUTE, _RELATIVE = 32, 3, 13
"""Types of the note on kernels, and of relocations: the address of a symbol, or where the object is loaded."""
_NAMES = (".name", ".symbol")
"""Keys of a kernel's row that name its function and its descriptor."""
_SYMBOL_TYPES = "STT_FUNC", "STT_OBJECT"
"""Of a kernel's function, and of its descriptor."""
_DESCRIPTOR = struct.Struct("<III4sq20sIIIHH4s")
_USER_SGPRS = ((1, 4), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 1))
"""Bits of a descriptor's properties, and how many registers each is: the scratch memory's buffer, dispatch, queue,
arguments, dispatch id, scratch, size."""
_DYNAMIC_STACK = 1 << 11
_STACK_BYTES = 1 << 14
"""Of a lane, for calls whose depth is known only when they happen."""
_KNOWN_PROPERTIES = sum(bit for bit, _ in _USER_SGPRS) | _DYNAMIC_STACK
LANES = 64
"""Of a wave."""
_MOST_HEADERS = 1000
_MOST_GAPS = 16 << 20
"""Bytes of the memory image beside the file's own: between segments lie pages."""
_MOST_ZEROS = 1 << 30
"""Bytes of a code object's variables without a value."""
_MOST_SCRATCH_BYTES = 8191 * 1024 // 64
"""Per lane: what the register for its size can say."""
_MOST_ARGUMENT_BYTES = 1 << 24
_MOST_DEBUG_BYTES = {".debug_line": 1 << 20, ".debug_abbrev": 1 << 16}
_MOST_UNITS = 16
"""Debug information that is read; of what is larger there are no source lines."""
_COMPRESSED = 0x800
"""Flag of a section."""


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
    def lane_bytes(self) -> int:
        """Private memory that each lane gets: what it needs, and a stack if calls need more than the compiler knows."""
        return self.scratch_bytes + (_STACK_BYTES if self.properties & _DYNAMIC_STACK else 0)

    @property
    def explicit_arguments(self) -> list[dict[str, Any]]:
        """Rows of the arguments that the host passes; the runtime adds the others."""
        return [row for row in self.arguments if not row[".value_kind"].startswith("hidden_")]

    def user_registers(self) -> Iterator[tuple[int, int]]:
        """Yield the bit of each user SGPR that is set, and the number of its first register."""
        register = 0
        for bit, registers in _USER_SGPRS:
            if self.properties & bit:
                yield bit, register
                register += registers


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
    zeros: int = 0
    """Bytes in memory behind the image: variables without a value."""
    relocations: tuple[tuple[int, int], ...] = ()
    """Places in the image that hold an address, and the address in the image."""

    def source(self, address: int) -> str:
        """Return the file and line of an instruction; empty without debug information."""
        at = bisect.bisect_right(self.lines, address, key=itemgetter(0)) - 1
        return self.lines[at][1] if at >= 0 else ""

    def find(self, kernel: str) -> str:
        """Return the name of a kernel in ``kernels``, by that name or as it was written: ``scale``, ``space::scale``.

        ``ValueError`` if none or several have the name.
        """
        if kernel in self.kernels:
            return kernel
        found = [name for name in self.kernels if kernel in (qualified_name(name), base_name(name))]
        if not found:
            names = dict.fromkeys(map(qualified_name, self.kernels))
            raise ValueError(f"the code object has no kernel {kernel}, but {', '.join(names)}")
        if len(found) > 1:
            raise ValueError(f"several kernels have the name {kernel}; choose one of {', '.join(found)}")
        return found[0]

    def missing(self, kernel: str) -> dict[int, str]:
        """Return the addresses of the instructions of a kernel that are not emulated, and what is missing."""
        # Here, because the modules of instructions need not be imported to read a code object.
        from amdgpu_emulator.machine_code import missing

        return missing(self.image, self.kernels[self.find(kernel)].entry, self.text, self.arch)

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Argument], **options: Any
    ) -> Execution:
        """Execute a kernel on a GPU of its own; see ``EmulatedGpu.launch``."""
        # Here, because the module of the GPU imports this one.
        from amdgpu_emulator.device import EmulatedGpu

        return EmulatedGpu().launch(self, kernel, grid, block, arguments, **options)


def load(content: bytes | Path | str) -> CodeObject:
    """Read a code object, alone or in the bundle that the compiler puts into a library.

    ``ValueError`` says what of it is damaged, or of a machine that is not emulated.
    """
    where = ""
    if isinstance(content, Path | str):
        path = Path(content)
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: this is no regular file")
        where, content = f"{path}: ", path.read_bytes()
    try:
        return _code_object(_only_part(content))
    except ValueError as error:
        raise ValueError(f"{where}this is no AMDGPU code object that can be executed: {error}") from error


def is_code_object(path: Path) -> bool:
    """Return whether a file begins as a code object or a bundle of them does."""
    with path.open("rb") as file:
        head = file.read(64)
    return head.startswith((_BUNDLE, _COMPRESSED_BUNDLE)) or (head[:4] == b"\x7fELF" and head[18:20] == b"\xe0\0")


def bundle_bytes(head: bytes) -> int:
    """Return the size of a bundle of code objects, by its first bytes; ``ValueError`` if it is none."""
    if not head.startswith(_BUNDLE):
        raise ValueError("this is no bundle of code objects")
    return max((end for _, _, end in _bundle_entries(head)), default=0)


def _bundle_entries(head: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the target, begin and end of each part of a bundle."""
    (count,) = struct.unpack("<Q", _slice(head, len(_BUNDLE), 8, "the head of the bundle"))
    at = len(_BUNDLE) + 8
    for number in range(count):
        begin, size, length = struct.unpack("<QQQ", _slice(head, at, 24, f"part {number} of the bundle's {count}"))
        yield _slice(head, at + 24, length, f"the target of part {number} of the bundle"), begin, begin + size
        at += 24 + length


def _only_part(content: bytes) -> bytes:
    if content.startswith(_COMPRESSED_BUNDLE):
        raise ValueError("it is in a compressed bundle; compile with --no-offload-compress")
    if not content.startswith(_BUNDLE):
        return content
    parts = [(begin, end) for target, begin, end in _bundle_entries(content) if b"amdgcn" in target]
    if len(parts) != 1:
        raise ValueError(f"the bundle has {len(parts)} code objects; build the library for one arch")
    ((begin, end),) = parts
    return _slice(content, begin, end - begin, "the bundle's code object")


def _slice(content: bytes, at: int, size: int, what: str) -> bytes:
    if not 0 <= at <= at + size <= len(content):
        raise ValueError(f"{what} needs the bytes from {at} to {at + size}, and there are {len(content)}")
    return content[at : at + size]


def _code_object(file: bytes) -> CodeObject:
    if not file.startswith(b"\x7fELF"):
        raise ValueError(f"it begins with {file[:4]!r}, and is no ELF file")
    try:
        return _read(file, ELFFile(io.BytesIO(file)))
    except ValueError:
        raise
    except Exception as error:
        # What pyelftools and msgpack raise for a damaged table is whatever their parsers stumble over.
        raise ValueError(f"its tables are damaged: {error!r}"[:200].replace("\n", " ")) from error


def _read(file: bytes, elf: ELFFile) -> CodeObject:
    arch = _arch(file, elf)
    for number, section in enumerate(elf.iter_sections()):
        if section["sh_type"] != "SHT_NOBITS":
            _slice(file, section["sh_offset"], section["sh_size"], f"section {number}")
    image, zeros, text = _memory(file, elf)
    metadata = _metadata(elf)
    # The target is amdgcn-amd-amdhsa--gfx950, with features such as :xnack- behind it.
    target = _of_kind(metadata, "amdhsa.target", str, "the metadata")
    if (named := target.rpartition("--")[2].partition(":")[0]) != arch:
        raise ValueError(f"it is for {arch} by its flags, and for {named[:60]!r} by its metadata")
    rows = _of_kind(metadata, "amdhsa.kernels", list, "the metadata")
    symbols = [one for one in elf.iter_sections() if one["sh_type"] == "SHT_DYNSYM"]
    if len(symbols) != 1:
        raise ValueError(f"it has {len(symbols)} tables of dynamic symbols")
    found = [_descriptor(row, f"kernel {number}", image, symbols[0], text) for number, row in enumerate(rows)]
    kernels = {kernel.name: kernel for kernel in found}
    if len(kernels) < len(rows):
        raise ValueError("two of its kernels have the same name")
    return CodeObject(arch, kernels, image, text, _lines(elf), zeros, _relocations(elf, image))


def _arch(file: bytes, elf: ELFFile) -> str:
    """Return the arch of a code object that can be read; ``ValueError`` if it is of something else."""
    head, (word, order, _, system, version) = elf.header, _slice(file, 4, 5, "the ELF header")
    kind, flags, counts = head["e_type"], head["e_flags"], (head["e_phnum"], head["e_shnum"])
    if head["e_machine"] != "EM_AMDGPU":
        raise ValueError(f"its machine is {head['e_machine']}, not an AMD GPU")
    if (word, order, system) != (2, 1, _HSA):
        raise ValueError(f"its class, byte order and system are {word}, {order}, {system} and not 2, 1, {_HSA}")
    if not 1 <= version <= 4:
        raise ValueError(f"its ABI has version {version}; 1 to 4 (code objects V3 to V6) are known")
    if kind != "ET_DYN":
        raise ValueError(f"its type is {kind} and not ET_DYN; link it")
    if flags & 0xFF not in _ARCH_OF_FLAGS:
        raise ValueError(f"its flags {flags:#x} stand for a GPU other than {', '.join(_ARCH_OF_FLAGS.values())}")
    if flags & ~(0xFF | _FEATURE_FLAGS):
        raise ValueError(f"its flags {flags:#x} have unknown bits")
    if not 0 < min(counts) <= max(counts) <= _MOST_HEADERS:
        raise ValueError(f"it has {counts[0]} segments and {counts[1]} sections")
    return _ARCH_OF_FLAGS[flags & 0xFF]


def _memory(file: bytes, elf: ELFFile) -> tuple[bytes, int, tuple[int, int]]:
    """Return what the file says of the memory, how many bytes of zeros follow, and where the machine code lies."""
    image, end, executable = bytearray(), 0, [(0, 0, 0)]
    for number, segment in enumerate(elf.iter_segments()):
        head, what = segment.header, f"segment {number}"
        if head.p_type != "PT_LOAD":
            continue
        content = _slice(file, head.p_offset, head.p_filesz, what)
        if head.p_memsz < head.p_filesz:
            raise ValueError(f"{what} has {head.p_filesz} bytes, and {head.p_memsz} in memory")
        if head.p_vaddr < end:
            raise ValueError(f"{what} at {head.p_vaddr:#x} overlaps the one before it, which ends at {end:#x}")
        end = head.p_vaddr + head.p_memsz
        if content and head.p_vaddr + len(content) > len(file) + _MOST_GAPS:
            raise ValueError(f"{what} reaches to {end:#x}, far beyond the file's {len(file)} bytes")
        if content:
            image += bytes(head.p_vaddr - len(image)) + content
        if head.p_flags & _EXECUTABLE:
            executable.append((head.p_vaddr, head.p_vaddr + len(content), head.p_offset))
    if end - len(image) > _MOST_ZEROS:
        raise ValueError(f"its segments need {end - len(image)} bytes beside its own; {_MOST_ZEROS} can be had")
    code = elf.get_section_by_name(".text") or {"sh_addr": 0, "sh_size": 0, "sh_offset": -1}
    text = code["sh_addr"], code["sh_addr"] + code["sh_size"]
    if not any(
        begin <= text[0] <= text[1] <= last and text[0] - begin == code["sh_offset"] - offset
        for begin, last, offset in executable
    ):
        raise ValueError(f"its machine code from {text[0]:#x} to {text[1]:#x} is in no executable segment")
    return bytes(image), end - len(image), text


def _relocations(elf: ELFFile, image: bytes) -> tuple[tuple[int, int], ...]:
    """Return the places in the image that hold an address of it, as tables of virtual functions do, and the address."""
    found = []
    for section in (one for one in elf.iter_sections() if isinstance(one, RelocationSection)):
        for row in section.iter_relocations():
            kind, place, target = row["r_info_type"], row["r_offset"], row.entry.get("r_addend", -1)
            if kind == _ABSOLUTE:
                symbols: Any = elf.get_section(section["sh_link"])
                target += symbols.get_symbol(row["r_info_sym"])["st_value"]
            if kind not in (_ABSOLUTE, _RELATIVE) or not 0 <= target <= len(image) or not 0 <= place <= len(image) - 8:
                raise ValueError(f"its relocation of type {kind} at {place:#x} is not emulated")
            found.append((place, target))
    return tuple(found)


def _metadata(elf: ELFFile) -> Any:
    """Return what the note on the kernels says."""
    sections = [section for section in elf.iter_sections() if isinstance(section, NoteSection)]
    notes: list[Any] = [note for section in sections for note in section.iter_notes()]
    found = [note for note in notes if (note["n_name"], note["n_type"]) == ("AMDGPU", _METADATA_NOTE)]
    if len(found) != 1:
        raise ValueError(f"it has {len(found)} notes on its kernels")
    return msgpack.unpackb(found[0]["n_descdata"])


def _of_kind(row: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is a {type(row).__name__}, and no row")
    value = row.get(key)
    if not isinstance(value, kind) or (isinstance(value, int) and (isinstance(value, bool) or value < 0)):
        raise ValueError(f"{key} of {where} is {repr(value)[:60]}, and not a {kind.__name__}")
    return value


def _descriptor(row: Any, where: str, image: bytes, symbols: Any, text: tuple[int, int]) -> KernelDescriptor:
    """Return a kernel of the metadata; what its descriptor, symbols and row say alike has to agree."""
    names = [_of_kind(row, key, str, where) for key in _NAMES]
    where = f"kernel {names[0][:60]}"
    pair = [one.entry for name in names for one in symbols.get_symbol_by_name(name) or ()
            if one.entry.st_shndx != "SHN_UNDEF"]  # fmt: skip
    if tuple(entry.st_info.type for entry in pair) != _SYMBOL_TYPES:
        raise ValueError(f"the function or the descriptor of {where} is no dynamic symbol")
    function, symbol = pair
    content = _slice(image, symbol.st_value, _DESCRIPTOR.size, f"the descriptor of {where}")
    lds, scratch, kernarg, unused, offset, *others, _, _, rsrc2, properties, _, last = _DESCRIPTOR.unpack(content)
    if (
        symbol.st_size != _DESCRIPTOR.size
        or symbol.st_value % _DESCRIPTOR.size
        or any(unused + b"".join(others) + last)
    ):
        raise ValueError(f"the descriptor of {where} is damaged")
    entry = symbol.st_value + offset
    if entry != function.st_value or entry % 256:
        raise ValueError(f"{where} begins at {entry:#x} by its descriptor, and at {function.st_value:#x} by its symbol")
    if not text[0] <= entry < entry + function.st_size <= text[1]:
        raise ValueError(f"{where}, with {function.st_size} bytes at {entry:#x}, is outside of .text")
    said = {".group_segment_fixed_size": lds, ".private_segment_fixed_size": scratch, ".kernarg_segment_size": kernarg}
    for key, value in (said | {".wavefront_size": LANES}).items():
        if _of_kind(row, key, int, where) != value:
            raise ValueError(f"{key} of {where} is {row[key]} in the metadata, and {value} in the descriptor")
    if scratch > _MOST_SCRATCH_BYTES or kernarg > _MOST_ARGUMENT_BYTES:
        raise ValueError(f"{where} needs {scratch} bytes of scratch a lane, and {kernarg} of arguments")
    registers = sum(count for bit, count in _USER_SGPRS if properties & bit)
    if properties & ~_KNOWN_PROPERTIES or registers > rsrc2 >> 1 & 31:
        raise ValueError(f"the properties {properties:#x} of {where} do not fit its {rsrc2 >> 1 & 31} user SGPRs")
    arguments = tuple(_of_kind({".args": []} | row, ".args", list, where))
    _check_arguments(arguments, kernarg, where)
    return KernelDescriptor(names[0], entry, function.st_size, lds, scratch, kernarg, arguments, rsrc2, properties)


def _check_arguments(arguments: Sequence[Any], kernarg: int, where: str) -> None:
    end = 0
    for number, row in enumerate(arguments):
        what = f"argument {number} of {where}"
        _of_kind(row, ".value_kind", str, what)
        offset, size = (_of_kind(row, key, int, what) for key in (".offset", ".size"))
        if not end <= offset < offset + size <= kernarg:
            raise ValueError(f"{what}, with {size} bytes at {offset}, overlaps another one or the end at {kernarg}")
        end = offset + size


def _lines(elf: ELFFile) -> tuple[tuple[int, str], ...]:
    """Return where source lines begin; empty for debug information that is compressed, or of an unusual size."""
    debug = {one.name: one for one in elf.iter_sections() if one.name.startswith((".debug_", ".zdebug_"))}
    too_large = [name for name, most in _MOST_DEBUG_BYTES.items() if name in debug and debug[name]["sh_size"] > most]
    is_packed = any(one["sh_flags"] & _COMPRESSED or one.name.startswith(".z") for one in debug.values())
    if ".debug_line" not in debug or too_large or is_packed:
        return ()
    rows: dict[int, list[tuple[int, str]]] = {}
    dwarf = elf.get_dwarf_info()
    for unit in itertools.islice(dwarf.iter_CUs(), _MOST_UNITS):
        place = unit.get_top_DIE().attributes.get("DW_AT_stmt_list")
        if place is not None and place.value not in rows and (program := dwarf.line_program_for_CU(unit)):
            # The files of version 5 are counted from 0.
            files, first = program["file_entry"], int(program["version"] < 5)
            states = [entry.state for entry in program.get_entries() if entry.state]
            rows[place.value] = [
                (s.address, f"{files[s.file - first].name.decode()}:{s.line}" if s.line else "") for s in states
            ]
    return tuple(sorted(itertools.chain.from_iterable(rows.values()), key=itemgetter(0)))
