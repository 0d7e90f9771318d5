"""Files of others: each way to damage a code object ends in one line, or in what the kernel did; memory is bounded."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import msgpack
import numpy as np
import pytest
from amd_instructions import encode
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import (
    CodeObject,
    EmulationFault,
    EmulationHang,
    KernelDescriptor,
    UnsupportedInstruction,
    bundle_bytes,
    load,
)

SAXPY = Path(__file__).with_name("saxpy.co").read_bytes()
SEGMENTS, SECTIONS = (struct.unpack_from("<Q", SAXPY, at)[0] for at in (32, 40))
SEGMENT_COUNT, _, SECTION_COUNT = struct.unpack_from("<HHH", SAXPY, 56)
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
TARGET = b"hipv4-amdgcn-amd-amdhsa--gfx950"
NUMBERS = [0, 1, 5 << 30, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1]


def section_header(kind):
    """Offset in the file of the header of the first section of a type."""
    headers = (SECTIONS + 64 * number for number in range(SECTION_COUNT))
    return next(at for at in headers if struct.unpack_from("<I", SAXPY, at + 4)[0] == kind)


def section(kind):
    return struct.unpack_from("<QQ", SAXPY, section_header(kind) + 24)


(NOTE, NOTE_BYTES), (SYMBOLS, SYMBOLS_BYTES) = section(7), section(11)
(DESCRIPTOR,) = (SAXPY.find(b"\0" * 8 + struct.pack("<I", 280)),)
CODE, CODE_BYTES = 0x900, 124
PLACES = {
    "header": (0, 64),
    "segments": (SEGMENTS, 56 * SEGMENT_COUNT),
    "sections": (SECTIONS, 64 * SECTION_COUNT),
    "note": (NOTE, NOTE_BYTES),
    "symbols": (SYMBOLS, SYMBOLS_BYTES),
    "descriptor": (DESCRIPTOR, 64),
    "code": (CODE, CODE_BYTES),
    "anywhere": (0, len(SAXPY)),
}


def damaged(place, seed):
    """The file with one of several kinds of damage at a place."""
    draw, content = random.Random(f"{place} {seed}"), bytearray(SAXPY)
    begin, size = PLACES[place]
    at = begin + draw.randrange(size)
    what = seed % 5
    if what == 0:
        content[at] ^= 1 << draw.randrange(8)
    elif what == 1:
        struct.pack_into("<Q", content, min(at & ~7, len(content) - 8), draw.choice(NUMBERS))
    elif what == 2:
        struct.pack_into("<I", content, min(at & ~3, len(content) - 4), draw.choice(NUMBERS) & 0xFFFFFFFF)
    elif what == 3:
        count = min(draw.randrange(1, 64), len(content) - at)
        content[at : at + count] = draw.randbytes(count)
    else:
        del content[at:]
    return bytes(content)


@pytest.mark.parametrize("place", PLACES)
def test_a_damaged_file_is_one_line_or_runs(place):
    refused = 0
    for seed in range(60):
        arguments = np.ones(100, np.float32), np.arange(100, dtype=np.float32), np.float32(3), np.uint32(100)
        try:
            code = load(damaged(place, seed))
            code.launch(next(iter(code.kernels)), [2], [64], arguments, most_instructions=20_000)
        except (ValueError, EmulationFault) as error:
            assert "\n" not in str(error) and len(str(error)) < 400
            refused += 1
    assert refused >= 10


def patched(at, form, value):
    content = bytearray(SAXPY)
    struct.pack_into(form, content, at, value)
    return bytes(content)


def load_header(number):
    """Offset of the header of a segment that is loaded."""
    loaded = [at for at in range(SEGMENTS, SEGMENTS + 56 * SEGMENT_COUNT, 56) if SAXPY[at] == 1]
    return loaded[number]


def with_note(change):
    """The file with other metadata, in as many bytes."""
    head = struct.unpack_from("<III", SAXPY, NOTE)
    begin = NOTE + 12 + -(-head[0] // 4) * 4
    metadata = msgpack.unpackb(SAXPY[begin : begin + head[1]])
    change(metadata)
    (packed,) = (
        content for size in range(head[1])
        if len(content := msgpack.packb(metadata | {"filled": "x" * size})) == head[1]
    )  # fmt: skip
    return SAXPY[:begin] + packed + SAXPY[begin + head[1] :]


def kernel(changes):
    return lambda metadata: metadata["amdhsa.kernels"][0].update(changes)


@pytest.mark.parametrize(("content", "said"), [
    (patched(18, "<H", 62), "its machine is EM_X86_64, not an AMD GPU"),
    (patched(48, "<I", 0x541), "its flags 0x541 stand for a GPU other than gfx90a, gfx942, gfx950"),
    (patched(48, "<I", 0x54C), "it is for gfx942 by its flags, and for 'gfx950' by its metadata"),
    (patched(7, "<B", 0), "class, byte order and system are 2, 1, 0"),
    (patched(8, "<B", 9), "its ABI has version 9"),
    (patched(16, "<H", 1), "its type is ET_REL and not ET_DYN; link it"),
    (patched(load_header(3) + 40, "<Q", 5 << 30), "its segments need 5368.* bytes beside its own; 1073741824 can"),
    (patched(load_header(3) + 16, "<Q", 1 << 60), "its segments need 1152.* bytes beside its own"),
    (patched(load_header(1) + 16, "<Q", 0), "segment 2 at 0x0 overlaps the one before it"),
    (patched(section_header(11) + 32, "<Q", 3 << 50), "section 2 needs the bytes from 1872 to 3377"),
    (SAXPY[:SYMBOLS] + bytes(SYMBOLS_BYTES) + SAXPY[SYMBOLS + SYMBOLS_BYTES :],
     "the function or the descriptor of kernel saxpy is no dynamic symbol"),
    (patched(SYMBOLS + 24 + 8, "<Q", 0x1A00),
     "kernel saxpy begins at 0x1900 by its descriptor, and at 0x1a00 by its symbol"),
    (patched(DESCRIPTOR + 4, "<I", 1 << 31),
     ".private_segment_fixed_size of kernel saxpy is 0 in the metadata, and 2147483648 in the descriptor"),
    (with_note(kernel({".args": [{".size": 8, ".value_kind": "by_value"}]})), ".offset of argument 0 .* is None"),
    (with_note(kernel({".args": [{".offset": 276, ".size": 8, ".value_kind": "by_value"}]})),
     "argument 0 of kernel saxpy, with 8 bytes at 276, overlaps another one or the end at 280"),
    (with_note(kernel({".args": 3})), ".args of kernel saxpy is 3, and not a list"),
    (with_note(kernel({".symbol": 7})), ".symbol of kernel 0 is 7, and not a str"),
    (with_note(lambda metadata: metadata.update({"amdhsa.kernels": 5})), "amdhsa.kernels of the metadata is 5"),
    (b"CCOB" + SAXPY, "a compressed bundle; compile with --no-offload-compress"),
    (BUNDLE + struct.pack("<Q", 1 << 40), "part 0 of the bundle's 1099511627776 needs the bytes from 32 to 56"),
    (BUNDLE + struct.pack("<4Q", 1, 4096, 1 << 40, len(TARGET)) + TARGET,
     "the bundle's code object needs the bytes from 4096"),
])  # fmt: skip
def test_what_is_damaged_has_a_name(content, said):
    with pytest.raises(ValueError, match="no AMDGPU code object that can be executed: .*" + said) as caught:
        load(content)
    assert "\n" not in str(caught.value)


def test_a_file_is_named_and_a_bundle_that_is_cut_off_is_no_traceback(tmp_path):
    (tmp_path / "kernels.co").write_bytes(SAXPY[:3000])
    with pytest.raises(ValueError, match=r"kernels\.co: this is no AMDGPU code object"):
        load(tmp_path / "kernels.co")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match=f"{path}: this is no regular file"):
            load(path)
    for size in range(len(BUNDLE), len(BUNDLE) + 40):
        with pytest.raises(ValueError, match="bundle"):
            bundle_bytes((BUNDLE + struct.pack("<4Q", 1, 0, 0, 1 << 60))[:size])


def test_variables_without_a_value_are_zeros():
    code = load(patched(load_header(3) + 40, "<Q", 1 << 29))
    assert code.zeros > 1 << 28 and len(code.image) < 20_000
    arguments = np.ones(100, np.float32), np.arange(100, dtype=np.float32), np.float32(3), np.uint32(100)
    assert code.launch("saxpy", [2], [64], arguments).races == []


def straight(count):
    """Code without a branch: additions of different registers."""
    registers = np.random.default_rng(count).integers(0, 250, (count, 3)).tolist()
    return b"".join(encode("VOP2", ins.VOP2Op.V_ADD_U32_E32, src0=256 + a, vsrc1=b, vdst=c) for a, b, c in registers)


def execute(code, **options):
    descriptor = KernelDescriptor("straight", 0, len(code), 0, 0, 8, (), 10 << 1, 8)
    code_object = CodeObject("gfx950", {"straight": descriptor}, code, (0, len(code)))
    return code_object.launch("straight", [1], [64], [], **options)


def test_what_is_translated_is_counted(monkeypatch):
    from amdgpu_emulator import machine_code

    translated = []
    translate = machine_code.instructions.translate
    monkeypatch.setattr(
        machine_code.instructions, "translate", lambda *words: translated.append(1) or translate(*words)
    )
    for code in (straight(20_000), bytes(1 << 16)):
        with pytest.raises(EmulationHang, match="does not end: it is in the code from 0x"):
            execute(code, most_instructions=1000)
        assert len(translated) <= 1280
        translated.clear()
    monkeypatch.setattr(machine_code, "_MOST_TRANSLATED", 3000)
    with pytest.raises(UnsupportedInstruction, match="a launch with more than 3000 different instructions"):
        execute(straight(20_000))
    assert len(translated) <= 3000
    end = encode("SOPP", ins.SOPPOp.S_ENDPGM)
    assert execute(straight(2000) + end).opcodes["v_add_u32"] == 2000


def test_instructions_that_no_assembler_writes_are_faults_with_a_place():
    for seed in range(300):
        draw = random.Random(seed)
        encoding = draw.choice([0xD3, 0xD1, 0xD8, 0xDC, 0xE0, 0xC0, 0xB0, 0xBE, 0xBF, 0x7E, 0x80, 0x10])
        code = draw.randbytes(3) + bytes([encoding]) + draw.randbytes(8)
        try:
            execute(code + encode("SOPP", ins.SOPPOp.S_ENDPGM), most_instructions=2000)
        except EmulationFault as fault:
            assert "0x" in str(fault) and "\n" not in str(fault)
