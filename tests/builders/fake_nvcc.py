"""Behaves as nvcc does towards the toolchain, without compiling: words in a header say what is to happen.

FAIL a compile error, PTXAS one of the assembler, CUT an object that is cut short; CODE=n decides the machine code,
SPILL=n the spilled bytes. Writes one line a run to ``runs`` beside this file, the names of the kernels.
"""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import fake_hipcc

VERSION = "Cuda compilation tools, release 99.1, V99.1.2"


def main(arguments: list[str]) -> int:
    here = Path(sys.argv[0]).parent
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    if "--dryrun" in arguments:
        print("#$", *arguments)
        return 0
    if "-M" in arguments:
        headers = fake_hipcc.opened(Path("unit.cpp"), arguments)
        Path("headers").write_text(f"unit: {' '.join(headers)}\n")
        return 0
    output = Path(arguments[arguments.index("-o") + 1])
    if "-shared" in arguments:
        objects = [Path(part).read_bytes() for part in arguments if part.endswith(".o")]
        # The driver is built from its source at once.
        output.write_bytes(b"".join(objects or [host_object([])]))
        return 0
    names = re.findall(r"TILESEER_CUTLASS_KERNEL\((\w+)\)", Path("unit.cpp").read_text())
    with (here / "runs").open("a") as stream:
        stream.write(" ".join(names) + "\n")
    texts = {name: Path(f"{name}.cuh").read_text() for name in names}
    for name, text in texts.items():
        if "FAIL" in text:
            print(f"{name}.cuh(7): error: {name} has no such member")
            return 1
        if "PTXAS" in text:
            print(
                "ptxas error   : too much shared data in a kernel\nptxas fatal   : Ptx assembly aborted due to errors"
            )
            return 255
    cut = any("CUT" in text for text in texts.values())
    output.write_bytes(host_object(names)[: 100 if cut else None])
    if "--keep" in arguments:
        Path("unit.cubin").write_bytes(cubin(texts))
        for name, text in texts.items():
            spilled = found(text, "SPILL", 0)
            print(
                f"ptxas info    : Compiling entry function '{symbol(name)}' for 'sm_90'\n"
                f"ptxas info    : Function properties for {symbol(name)}\n"
                f"    16 bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n"
                "ptxas info    : Used 128 registers, used 1 barriers, 512 bytes smem"
            )
    return 0


def found(text: str, word: str, default: int) -> int:
    match = re.search(rf"{word}=(\d+)", text)
    return int(match[1]) if match else default


def symbol(name: str) -> str:
    return f"_ZN7cutlass6KernelIN{len(name)}{name}6KernelEEEvNT_6ParamsE"


def cubin(texts: dict[str, str]) -> bytes:
    codes = {name: struct.pack("<Q", found(text, "CODE", 0)) * 2 for name, text in texts.items()}
    return fake_hipcc.elf([(f".text.{symbol(name)}", 1, 0, code) for name, code in codes.items()], [])


def host_object(names: list[str]) -> bytes:
    data = struct.pack("<2i", 128, 49152)
    symbols = [(f"{name}_block", 1, len(data) * at, len(data)) for at, name in enumerate(names)]
    return fake_hipcc.elf([(".rodata", 1, 0, data * len(names))], symbols)
