"""Behaves as hipcc does towards the toolchain, without compiling: words in a header say what is to happen.

FAIL a compile error, FULL a full disk, SAYS an error in the words that follow; LONG much assembly; CODE=n decides the
machine code, else the kernel's name does. Files beside this one: ``fail`` holds another word for FAIL, ``codes`` lines
of words and the code of the kernels that have them; one line a run is written to ``runs``.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import zlib
from pathlib import Path

import msgpack

VERSION = "fake hipcc version 1"


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print((Path(sys.argv[0]).parent / "version").read_text())
        return 0
    if "-###" in arguments:
        print(commands(arguments))
        return 0
    if "-E" in arguments:
        Path("headers").write_text(f"unit: {' '.join(opened(Path('unit.cpp'), arguments))}\n")
        return 0
    output = Path(arguments[arguments.index("-o") + 1])
    if "assembler" in arguments:
        output.write_bytes(code_object(re.findall(r"^; probe (\d+) (\d+)", Path("unit.s").read_text(), re.M)))
        return 0
    names = re.findall(r'#include "(.*)\.hpp"', Path("unit.cpp").read_text())
    with (Path(sys.argv[0]).parent / "runs").open("a") as stream:
        stream.write(" ".join(names) + "\n")
    texts = [Path(f"{name}.hpp").read_text() for name in names]
    return one_trouble(names, texts) or assembly(texts, output)


def commands(arguments: list[str]) -> str:
    """Say what it would run: the options, and a library of device code that lies beside it."""
    words = [*arguments, *os.environ.get("CCC_OVERRIDE_OPTIONS", "").split(), Path(sys.argv[0]).parent / "ocml.bc"]
    return " ".join(["", *(f'"{word}"' for word in words)])


def opened(path: Path, arguments: list[str]) -> list[str]:
    """List the headers that a file includes, directly or not, in the folders of -I and of the environment."""
    folders = [arguments[at + 1] for at, word in enumerate(arguments) if word == "-I"]
    folders += [*os.environ.get("CPLUS_INCLUDE_PATH", "").split(":"), Path(sys.argv[0]).parent / "system"]
    found = []
    for name in re.findall(r'^#include [<"](.*)[>"]', path.read_text(), re.M):
        header = next((Path(folder, name) for folder in folders if Path(folder, name).is_file()), None)
        if header is not None:
            found += [str(header), *opened(header, arguments)]
    return found


def one_trouble(names: list[str], texts: list[str]) -> int:
    listed = Path(sys.argv[0]).parent / "fail"
    word = listed.read_text() if listed.exists() else "FAIL"
    for index, text in enumerate(texts):
        if match := re.search(r"SAYS (.*)", text):
            print(match[1])
            return 1
        if "FULL" in text:
            print("fatal error: error in backend: IO failure on output stream: No space left on device")
            return 1
        if word in text:
            print(f"./{names[index]}.hpp:7:3: error: {names[index]} has no such member")
            if "SILENT" not in text:
                print(f"unit.cpp:9: note: in instantiation of member 'probe_{index}::Probe' requested here")
            return 1
    return 0


def assembly(texts: list[str], output: Path) -> int:
    lines = []
    for index, text in enumerate(texts):
        lines += [f"; probe {index} {code_of(text)}", f"{symbol(index)}:"]
        lines += [
            f".LBB{index}_1:   ; =>This Inner Loop Header: Depth=1",
            "\tv_mfma_f32_16x16x32_bf16 a",
            "\tbuffer_load_dwordx4 a",
            "\tds_read_b128 a",
            "\ts_barrier",
            f"\ts_cbranch_scc1 .LBB{index}_1",
            "; %bb.2:",
            "\ts_endpgm",
            f".Lfunc_end{index}:",
        ]
    if any("LONG" in text for text in texts):
        lines += ["; long"] * 20000
    output.write_text("\n".join(lines) + "\n")
    return 0


def code_of(text: str) -> int:
    listed = Path(sys.argv[0]).parent / "codes"
    lines = listed.read_text().splitlines() if listed.exists() else []
    for words, _, code in (line.rpartition(" ") for line in lines):
        if words in text:
            return int(code)
    match = re.search(r"CODE=(\d+)", text)
    # A multiple of 1000: the rest counts as spilled registers.
    return int(match[1]) if match else 1000 * zlib.crc32(re.search(r"grouped_conv_\w+", text)[0].encode())


def symbol(index: int | str) -> str:
    return f"_ZN7kentryILi2EN{len(f'probe_{index}')}probe_{index}5ProbeEE"


def code_object(probes: list[tuple[str, str]]) -> bytes:
    """Return an ELF file with what is read of a code object: a metadata note, symbols, code and descriptors."""
    text, rodata, rows, symbols = b"", b"", [], []
    for index, code in probes:
        symbols.append((symbol(index), 1, 0x1000 + len(text), 8))
        symbols.append((symbol(index) + ".kd", 2, 0x2000 + len(rodata), 64))
        text += struct.pack("<Q", int(code))
        rodata += bytes(16) + struct.pack("<Q", int(index)) + bytes(40)
        rows.append({
            ".name": symbol(index), ".symbol": symbol(index) + ".kd", ".vgpr_count": 96, ".agpr_count": 32,
            ".sgpr_count": 40, ".group_segment_fixed_size": 16384, ".private_segment_fixed_size": 0,
            ".vgpr_spill_count": int(code) % 1000, ".sgpr_spill_count": 0, ".max_flat_workgroup_size": 256,
        })  # fmt: skip
    payload = msgpack.packb({"amdhsa.kernels": rows})
    note = struct.pack("<III", 7, len(payload), 32) + b"AMDGPU\0\0" + payload + bytes(-len(payload) % 4)
    return elf([(".text", 1, 0x1000, text), (".rodata", 1, 0x2000, rodata), (".note", 7, 0, note)], symbols)


def elf(parts: list[tuple[str, int, int, bytes]], symbols: list[tuple[str, int, int, int]]) -> bytes:
    """Return an ELF file of sections (name, kind, address, content) with symbols (name, section, address, size)."""
    strings, table = b"\0", bytes(24)
    for name, section, address, size in symbols:
        table += struct.pack("<IBBHQQ", len(strings), 0x12, 0, section, address, size)
        strings += name.encode() + b"\0"
    sections = [(*part, 0, 0) for part in parts]
    sections += [(".strtab", 3, 0, strings, 0, 0), (".symtab", 2, 0, table, len(parts) + 1, 24)]
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections += [(".shstrtab", 3, 0, names, 0, 0)]
    body, headers = b"", bytes(64)
    for name, kind, address, content, link, entry in sections:
        place = names.index(name.encode() + b"\0")
        headers += struct.pack("<IIQQQQIIQQ", place, kind, 0, address, 64 + len(body), len(content), link, 0, 4, entry)
        body += content + bytes(-len(content) % 8)
    start = b"\x7fELF\x02\x01\x01\x40" + bytes(8)
    start += struct.pack(
        "<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections) + 1, len(sections)
    )
    return start + body + headers
