"""A program in another process whose launches are executed here; a script plays one that is linked to a runtime."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emulator import load
from amdgpu_emulator.names import base_name, qualified_name

SAXPY = Path(__file__).with_name("saxpy.co")
PROGRAM = """
import os, socket, struct, sys
import numpy as np

stream = socket.socket(fileno=int(os.environ["AMDGPU_EMULATOR"])).makefile("rwb")
number = struct.Struct("<q").pack

def text(content):
    return number(len(content)) + content

def ask(*parts):
    content = b"".join(parts)
    stream.write(number(len(content)) + content)
    stream.flush()
    answer = stream.read(*struct.unpack("<q", stream.read(8)))
    return struct.unpack_from("<q", answer)[0], answer[8:]

def run(size):
    values = [number(1 << 20), number(1 << 21), struct.pack("<f", 3), struct.pack("<I", size)]
    launch, _ = ask(text(b"launch"), *map(number, (2, 1, 1, 64, 1, 1, 0)), *map(text, values))
    memory = [number(1 << 20), text(y.tobytes()), number(1 << 21), text(x.tobytes())]
    return ask(text(b"run"), number(launch), number(2), *memory)

count, sizes = ask(text(b"kernel"), text(b"saxpy"), number(7), text(open(sys.argv[1], "rb").read()))
assert struct.unpack(f"<{count}q", sizes) == (8, 8, 4, 4)
y, x = np.ones(100, np.float32), np.arange(100, dtype=np.float32)
instructions, after = run(100)
# A fault and an unknown kernel reach the program as text.
for failed, said in run(128), ask(text(b"kernel"), text(b"daxpy"), number(7), text(b"")):
    print(failed, said[8:].decode())
assert instructions > 10 and struct.unpack_from("<q", after)[0] == y.nbytes
assert (np.frombuffer(after[8 : 8 + y.nbytes], np.float32) == 3 * x + 1).all()
sys.exit(7)
"""


def emulated(*words):
    command = [sys.executable, "-m", "amdgpu_emulator", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_launches_of_a_program_are_executed(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = emulated(sys.executable, tmp_path / "program.py", SAXPY)
    assert (run.returncode, run.stderr) == (7, "")
    fault, unknown = run.stdout.splitlines()
    assert fault.startswith("-1 ") and "offset 400 of allocated memory" in fault
    assert "the code object has no kernel daxpy" in unknown


def test_a_program_that_cannot_be_started_is_named(tmp_path):
    run = emulated(tmp_path / "missing")
    said = f"{tmp_path}/missing: cannot be run: No such file or directory; build the program first\n"
    assert (run.returncode, run.stderr) == (1, said)
    assert "usage" in emulated().stderr


def test_a_kernel_runs_from_the_command_line(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    words = [SAXPY, "saxpy", "f32[100]=1", tmp_path / "x.npy", "2.0", "100", "--grid", "2", "--save", tmp_path / "out"]
    run = emulated(*words)
    assert (run.returncode, run.stderr) == (0, "") and "argument 0: 1.0 3.0 5.0 7.0" in run.stdout
    assert (np.load(tmp_path / "out/argument_0.npy") == 2 * np.arange(100) + 1).all()
    reverse = emulated(SAXPY.with_name("reverse.co"), "reverse", "i32[256]=range", "--block", "256")
    assert reverse.returncode == 1 and reverse.stderr.startswith("race in reverse: bytes 0 to 3 of the LDS")
    assert "saxpy (global_buffer of 8 bytes, global_buffer" in emulated(SAXPY).stdout
    beyond = emulated(SAXPY, "saxpy", "f32[90]", "f32[100]", "2.0", "100", "--grid", "2")
    where = r"by wave 0 of workgroup \(1, 0, 0\) of saxpy: .* offset 360 of argument 0"
    assert beyond.returncode == 1 and re.match(rf"MemoryFault: GLOBAL_LOAD_DWORD at 0x\w+ .*{where}", beyond.stderr)
    mistakes = {4: ("one", "argument 2: 'one' is not a number of 4 bytes"), 1: ("axpy", "no kernel axpy, but saxpy")}
    for place, (word, said) in mistakes.items():
        wrong = emulated(*[word if number == place else other for number, other in enumerate(words)])
        assert wrong.returncode == 2 and said in wrong.stderr


@pytest.mark.parametrize(("mangled", "base", "whole"), [
    ("_Z5scalePff", "scale", "scale"), ("saxpy", "saxpy", "saxpy"), ("_ZN2my5scaleIfLi4EEEvPT_", "scale", "my::scale"),
    ("_Z9transposeI6__halfEvPT_PKS1_ii", "transpose", "transpose"), ("_ZL4hidePi", "hide", "hide"),
    ("_ZN12_GLOBAL__N_13addEPi", "add", "(anonymous namespace)::add"), ("_ZN1a1b1cEv", "c", "a::b::c"),
])  # fmt: skip
def test_kernels_are_named_as_they_were_written(mangled, base, whole):
    assert (base_name(mangled), qualified_name(mangled)) == (base, whole)
    code = load(SAXPY)
    renamed = replace(code, kernels={mangled: replace(code.kernels["saxpy"], name=mangled)})
    assert {renamed.find(name) for name in (mangled, base, whole)} == {mangled}
    several = replace(renamed, kernels=renamed.kernels | {f"_Z{len(base)}{base}IdE": code.kernels["saxpy"]})
    if mangled == base:
        return
    with pytest.raises(ValueError, match=f"several kernels have the name {base}; choose one of "):
        several.find(base)
